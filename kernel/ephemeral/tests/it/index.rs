//! The index against a plain model: a list of buffers in order of their release.

use pageferry_ephemeral::index::{BufferId, MappingIndex, Trace, Untraced};
use pageferry_hal::{Access, CpuId, CpuSet, Pfn};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Op {
    Alloc(u32),
    Free(usize),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    // Twice as many frames as buffers, and few chains: every path of the lists is walked.
    let op = prop_oneof![(0u32..24).prop_map(Op::Alloc), any::<usize>().prop_map(Op::Free)];
    proptest::collection::vec(op, 1..400)
}

/// What the index should do, without its structures.
struct Plain {
    /// Frame and references of each buffer.
    buffers: Vec<(Option<u32>, u32)>,
    /// Inactive buffers, least recently used first.
    inactive: Vec<usize>,
}

fn alloc(index: &mut MappingIndex, plain: &mut Plain, frame: u32) -> Option<BufferId> {
    let expected = plain.buffers.iter().position(|b| b.0 == Some(frame));
    let found = index.find(Pfn(frame), &mut Untraced);
    assert_eq!(found.map(BufferId::index), expected);
    if let Some(id) = found {
        index.acquire(id, &mut Untraced);
        plain.inactive.retain(|&b| b != id.index());
        plain.buffers[id.index()].1 += 1;
        return Some(id);
    }
    let victim = index.victim();
    assert_eq!(victim.map(BufferId::index), plain.inactive.first().copied());
    let id = victim?;
    index.rebind(id, Pfn(frame), &mut Untraced);
    plain.inactive.remove(0);
    plain.buffers[id.index()] = (Some(frame), 1);
    Some(id)
}

proptest! {
    #[test]
    fn behaves_like_a_plain_list(entries in 1usize..13, ops in ops()) {
        let mut index = MappingIndex::new(entries, CpuSet::first(2));
        let mut plain = Plain { buffers: vec![(None, 0); entries], inactive: (0..entries).collect() };
        let mut held: Vec<BufferId> = Vec::new();
        for op in ops {
            match op {
                Op::Alloc(frame) => held.extend(alloc(&mut index, &mut plain, frame)),
                Op::Free(_) if held.is_empty() => {}
                Op::Free(at) => {
                    let id = held.swap_remove(at % held.len());
                    let last = index.release(id, &mut Untraced);
                    let b = &mut plain.buffers[id.index()];
                    b.1 -= 1;
                    prop_assert_eq!(last, b.1 == 0);
                    if last {
                        plain.inactive.push(id.index());
                    }
                }
            }
            prop_assert_eq!(index.check(), Ok(()));
            prop_assert_eq!(index.active(), entries - plain.inactive.len());
        }
    }
}

#[test]
fn the_mask_survives_a_new_frame() {
    let mut index = MappingIndex::new(1, CpuSet::first(4));
    let id = index.victim().unwrap();
    index.set_cpus(id, CpuSet::only(CpuId(2)));
    index.rebind(id, Pfn(7), &mut Untraced);
    assert_eq!(index.cpus(id), CpuSet::only(CpuId(2)));
    assert_eq!((index.frame(id), index.references(id)), (Some(Pfn(7)), 1));
}

#[test]
fn chains_are_a_power_of_two() {
    assert_eq!([1, 2, 3, 8, 6 << 10, 64 << 10].map(MappingIndex::chains), [1, 2, 2, 8, 4096, 64 << 10]);
}

#[test]
#[should_panic(expected = "freed more often")]
fn a_second_free_is_a_bug() {
    let mut index = MappingIndex::new(2, CpuSet::first(1));
    let id = index.victim().unwrap();
    index.rebind(id, Pfn(1), &mut Untraced);
    index.release(id, &mut Untraced);
    index.release(id, &mut Untraced);
}

#[test]
#[should_panic(expected = "in use")]
fn a_buffer_in_use_is_no_victim() {
    let mut index = MappingIndex::new(2, CpuSet::first(1));
    let id = index.victim().unwrap();
    index.rebind(id, Pfn(1), &mut Untraced);
    index.rebind(id, Pfn(2), &mut Untraced);
}

/// Counts what an operation touches.
#[derive(Default)]
struct Touches(usize);
impl Trace for Touches {
    fn head(&mut self, _: usize, _: Access) {
        self.0 += 1;
    }
    fn buffer(&mut self, _: BufferId, _: Access) {
        self.0 += 1;
    }
}

/// With as many chains as buffers and dense frames a hit touches as much in a large index as in a small one.
#[test]
fn a_hit_touches_as_much_at_any_size() {
    let touches = |entries: usize| {
        let mut index = MappingIndex::new(entries, CpuSet::first(1));
        for frame in 0..entries as u32 {
            let id = index.victim().unwrap();
            index.rebind(id, Pfn(frame), &mut Untraced);
            index.release(id, &mut Untraced);
        }
        let mut t = Touches::default();
        let id = index.find(Pfn(entries as u32 / 2), &mut t).unwrap();
        index.acquire(id, &mut t);
        index.release(id, &mut t);
        t.0
    };
    assert_eq!(touches(1 << 10), touches(64 << 10));
    assert!(touches(1 << 10) < 10);
}
