//! Pieces of the area that large pages attach, as far as their lengths and places allow.

use crate::common::*;
use crate::ispc::{PAGE, ant, check, load, on_sh4, try_sh4};
use pageferry_hal::*;
use pageferry_kernel::*;

const SERVICE: u32 = 20;

/// An area of 4 MB, whose pieces large pages may attach.
fn large(method: Method, defect: Planted<IspcDefect>) -> KernelConfig {
    let mut config = ant(method);
    let ispc = config.ispc.as_mut().expect("it has an area");
    ispc.len_bytes = 4 << 20;
    ispc.large_pieces = true;
    ispc.defect = defect;
    config
}

/// log2 of the pages by which reserved entries attach what begins at `at`, in order of their addresses.
fn attached_by(u: &U, at: Va, pages: usize) -> Vec<u8> {
    let pmaps = u.kernel().vm().pmaps();
    let range = VaRange::pages_from(at, pages);
    let wired = (0..pmaps.reserved_entries()).filter_map(|entry| pmaps.wired(entry));
    let own = u.space().pmap().id();
    let mut found: Vec<(Va, u8)> = wired
        .filter(|(space, va, _)| *space == own && range.contains(*va))
        .map(|(_, va, tte)| (va, tte.shift))
        .collect();
    found.sort_unstable();
    found.into_iter().map(|(_, shift)| shift).collect()
}

#[test]
fn a_piece_is_attached_by_the_largest_pages_that_fit() {
    for method in [Method::Previous, Method::Proposed] {
        on_sh4(large(method, Planted::NONE), move |u| {
            let control = u.ica_alloc(1, Wait::No).unwrap();
            let shapes: [(usize, &[u8], u64); 5] = [
                (15, &[12; 15], PAGE as u64),
                (16, &[16], 1 << 16),
                (35, &[16, 16, 12, 12, 12], 1 << 16),
                (256, &[20], 1 << 20),
                (273, &[20, 16, 12], 1 << 20),
            ];
            for (pages, by, step) in shapes {
                let at = u.ica_alloc(pages, Wait::No).unwrap();
                assert_eq!(at.0 % step, 0, "{pages} pages at {at:?}");
                assert_eq!(attached_by(u, at, pages), by, "{pages} pages");
                for page in 0..pages {
                    u.store(at + page * PAGE, &[(page as u8).wrapping_add(1); 16]);
                }
                for page in 0..pages {
                    assert_eq!(
                        load(u, at + page * PAGE, 16),
                        [(page as u8).wrapping_add(1); 16],
                        "page {page}"
                    );
                }
                check(u);
                u.ica_free(at).unwrap();
                assert!(attached_by(u, at, pages).is_empty(), "nothing is left");
            }
            u.ica_free(control).unwrap();
        });
    }
    // By page tables, and where nobody asks for it, a page is a page.
    let config = large(Method::Previous, Planted::NONE);
    let without = IspcConfig { large_pieces: false, ..config.ispc.unwrap() };
    on_sh4(KernelConfig { ispc: Some(without), ..config }, |u| {
        let at = u.ica_alloc(16, Wait::No).unwrap();
        assert_eq!(attached_by(u, at, 16), [12; 16]);
        u.ica_free(at).unwrap();
    });
}

#[test]
fn a_large_piece_goes_and_comes_back_by_as_few_entries() {
    for method in [Method::Previous, Method::Proposed] {
        on_sh4(large(method, Planted::NONE), move |u| {
            let server = move |u: &U| {
                u.ispc_serve(SERVICE).unwrap();
                let request = u.ispc_receive(Wait::Yes).unwrap();
                let (at, len) = request.data.expect("it came with data");
                assert_eq!(len, 33 * PAGE);
                let by: &[u8] = if method == Method::Previous { &[16, 16, 12] } else { &[] };
                assert_eq!(attached_by(u, at, 33), by, "{method:?}");
                assert_eq!(load(u, at + 32 * PAGE, 4), [7; 4]);
                u.store(at + 17 * PAGE, &[9; 4]);
                u.ispc_return(request.id).unwrap();
            };
            u.fork("server", Box::new(server)).unwrap();
            let control = u.ica_alloc(1, Wait::Yes).unwrap();
            let data = u.ica_alloc(33, Wait::Yes).unwrap();
            u.store(data + 32 * PAGE, &[7; 4]);
            while u.ispc_request(SERVICE, control, Some(data), Wait::Yes) == Err(Errno::ConnectionRefused) {
                u.yield_now().unwrap();
            }
            assert_eq!(attached_by(u, data, 33), [16, 16, 12]);
            assert_eq!(load(u, data + 17 * PAGE, 4), [9; 4]);
            check(u);
            u.wait().unwrap();
            u.ica_free(data).unwrap();
            u.ica_free(control).unwrap();
        });
    }
}

/// What lies behind a piece of 31 pages, another's: killed for touching it?
fn behind_is_out_of_reach(defect: Planted<IspcDefect>) -> bool {
    let ended = try_sh4(large(Method::Previous, defect), 8, |u| {
        let own = u.ica_alloc(31, Wait::No).unwrap();
        u.fork(
            "other",
            Box::new(move |u| {
                let at = u.ica_alloc(1, Wait::Yes).unwrap();
                assert_eq!(at, own + 31 * PAGE, "the next page that is free");
                u.store(at, &[88; 8]);
                u.yield_now().unwrap();
                _ = u.ica_free(at);
            }),
        )
        .unwrap();
        u.yield_now().unwrap();
        u.store(own + 31 * PAGE, &[99; 8]);
    });
    ended.kernel.is_some_and(|kernel| kernel.killed().len() == 1)
}

#[test]
fn a_large_page_maps_nothing_that_is_not_of_the_piece() {
    assert!(behind_is_out_of_reach(Planted::NONE));
    for &defect in IspcDefect::ALL.iter().filter(|defect| defect.needs_large_pieces()) {
        assert!(!behind_is_out_of_reach(defect.into()), "{defect:?}: others' bytes are within reach");
    }
}
