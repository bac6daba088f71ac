//! A driver of the network card that is a program: frames in pieces of the area, which the card reads after the driver
//! has answered.

use crate::common::*;
use crate::ispc::{PAGE, SERVICE, ant, check, load, sh4, try_sh4_on, until_served};
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::Schedule;
use pageferry_model::net::{FarEnd, Wire};
use std::cell::RefCell;
use std::rc::Rc;

const FRAME_BYTES: usize = 1000;

/// Keeps all that arrives.
struct Keeper(Rc<RefCell<Vec<Vec<u8>>>>);

impl FarEnd for Keeper {
    fn arrives(&mut self, _: u64, frame: &[u8]) {
        self.0.borrow_mut().push(frame.to_vec());
    }
    fn poll(&mut self, _: u64) -> Option<Vec<u8>> {
        None
    }
    fn next_at(&mut self, _: u64) -> Option<u64> {
        None
    }
}

/// A driver that hands frames to the card and answers at once, until a control piece begins with 0.
fn driver(u: &U) {
    u.ispc_serve(SERVICE).unwrap();
    loop {
        let request = u.ispc_receive(Wait::Yes).unwrap();
        let is_last = load(u, request.control, 1)[0] == 0;
        if let Some((at, _)) = request.data {
            u.card_send(at, FRAME_BYTES).unwrap();
        }
        u.ispc_return(request.id).unwrap();
        if is_last {
            return;
        }
    }
}

fn frame(number: u8) -> Vec<u8> {
    (0..FRAME_BYTES).map(|at| number.wrapping_mul(31) ^ at as u8).collect()
}

/// Sends frames whose pieces are freed while the card reads them, and fills the area with others; what has arrived.
fn sent(method: Method, defect: Planted<IspcDefect>) -> (Ended, Vec<Vec<u8>>) {
    let arrived: Rc<RefCell<Vec<Vec<u8>>>> = Rc::default();
    let far = Keeper(arrived.clone());
    let m = sh4(Schedule::Timed, 8);
    m.attach_over(Wire::default(), Box::new(far));
    let mut config = ant(method);
    let its = config.ispc.as_mut().expect("it has an area");
    (its.defect, its.len_bytes, its.server_page_bytes) = (defect, 16 * PAGE, 1 << 16);
    let ended = try_sh4_on(m, config, |u| {
        u.fork("driver", Box::new(driver)).unwrap();
        let control = u.ica_alloc(1, Wait::Yes).unwrap();
        u.store(control, &[1]);
        until_served(u, control);
        for number in 0..4 {
            let data = u.ica_alloc(1, Wait::Yes).unwrap();
            u.store(data, &frame(number));
            u.ispc_request(SERVICE, control, Some(data), Wait::Yes).unwrap();
            u.ica_free(data).unwrap();
            check(u);
            // Another gets the first place that is free, and writes there at once.
            let other = u.ica_alloc(1, Wait::Yes).unwrap();
            u.store(other, &[0xee; PAGE]);
            check(u);
            u.sleep_for(Cycles(2_000_000)).unwrap();
            u.ica_free(other).unwrap();
            // The card has read it: its place is free again.
            let all: Vec<Va> = (0..15).map(|_| u.ica_alloc(1, Wait::No).unwrap()).collect();
            assert_eq!(u.ica_alloc(1, Wait::No), Err(Errno::NoMemory));
            all.into_iter().for_each(|va| u.ica_free(va).unwrap());
        }
        u.store(control, &[0]);
        u.ispc_request(SERVICE, control, None, Wait::Yes).unwrap();
        u.wait().unwrap();
    });
    let arrived = arrived.take();
    (ended, arrived)
}

#[test]
fn the_card_reads_what_was_handed_to_it_whoever_frees_it() {
    for method in [Method::Random, Method::Previous, Method::Proposed] {
        let (ended, arrived) = sent(method, Planted::NONE);
        sound(&ended, "sh7751r");
        assert_eq!(arrived.len(), 4, "{method:?}");
        for (number, found) in arrived.iter().enumerate() {
            assert!(*found == frame(number as u8), "{method:?}: frame {number}");
        }
    }
}

#[test]
fn what_a_driver_can_do_wrong_is_seen() {
    let (_, arrived) = sent(Method::Proposed, IspcDefect::FreedWhileSent.into());
    assert!(arrived.iter().any(|found| found[..100] != frame(0)[..100] && found[0] == 0xee), "others' bytes");
    let (ended, _) = sent(Method::Proposed, IspcDefect::NotWrittenBack.into());
    let problem = ended.result.expect_err("the card reads what memory does not have").to_string();
    assert!(problem.contains("in the cache only"), "{problem}");
    for defect in IspcDefect::ALL.iter().filter(|defect| defect.needs_a_card()) {
        assert!(matches!(defect, IspcDefect::FreedWhileSent | IspcDefect::NotWrittenBack), "{defect:?}");
    }
}
