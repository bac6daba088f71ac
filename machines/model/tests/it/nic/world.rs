//! Machines that wait for what is outside of them, for ever or not.

use super::*;

#[test]
fn waiting_for_a_frame_that_may_come_is_no_deadlock_and_for_none_it_is() {
    let frame = frame_to(CARD, 60, 1);
    run(&config("xeon-mp"), Some(Script::of([(1_000_000, frame.clone())])), |d| {
        d.post(1, 300);
        assert_eq!(d.received().tag, 1);
        assert!(d.m.now() > Cycles(2_400_000) && d.m.now() < Cycles(2_450_000), "{:?}", d.m.now());
    });
    let (_, result) = try_run(&config("xeon-mp"), Schedule::Timed, Some(Script::of([(1, frame)])), |d| {
        d.post(1, 300);
        d.received();
        d.post(2, 300);
        d.received();
    });
    assert!(matches!(result, Err(RunError::Deadlock { .. })), "{result:?}");
}

/// Has a frame at every moment.
struct Endless;

impl FarEnd for Endless {
    fn arrives(&mut self, _now_ns: u64, _frame: &[u8]) {}
    fn poll(&mut self, _now_ns: u64) -> Option<Vec<u8>> {
        None
    }
    fn next_at(&mut self, now_ns: u64) -> Option<u64> {
        Some(now_ns)
    }
}

#[test]
fn a_far_end_without_end_does_not_keep_a_dead_machine_alive() {
    let (_, result) = try_run(&config("xeon-mp"), Schedule::Timed, Some(Box::new(Endless)), |d| {
        d.received();
    });
    assert!(matches!(result, Err(RunError::Spinning { .. })), "{result:?}");
    let m = Model::new(&config("xeon-mp"), Options::default().cycle_limit(Cycles(100_000))).expect("valid");
    m.attach(Box::new(Endless));
    let result = m.run(Box::new(|m| {
        Driver::new(m).received();
        None
    }));
    assert!(matches!(result, Err(RunError::OutOfTime { .. })), "{result:?}");
    // One that runs does not mind, and ends.
    run(&config("xeon-mp"), Some(Box::new(Endless)), |d| d.m.execute(Instructions(10_000)));
}

/// Waits for the world, and then has a frame.
struct World {
    waits: Rc<Cell<Option<Option<u64>>>>,
    frame: Option<Vec<u8>>,
    has_come: bool,
}

impl FarEnd for World {
    fn arrives(&mut self, _now_ns: u64, _frame: &[u8]) {}
    fn poll(&mut self, _now_ns: u64) -> Option<Vec<u8>> {
        if self.has_come { self.frame.take() } else { None }
    }
    fn next_at(&mut self, now_ns: u64) -> Option<u64> {
        (self.has_come && self.frame.is_some()).then_some(now_ns + 5_000)
    }
    fn wait(&mut self, _now_ns: u64, until_ns: Option<u64>) -> bool {
        if self.waits.get().is_none() {
            self.waits.set(Some(until_ns));
        }
        !std::mem::replace(&mut self.has_come, true)
    }
}

#[test]
fn a_far_end_can_wait_for_the_world_while_all_cpus_are_halted() {
    for timer in [None, Some(Cycles(2_400_000))] {
        let waits = Rc::new(Cell::new(None));
        let world = World { waits: waits.clone(), frame: Some(frame_to(CARD, 60, 0)), has_come: false };
        run(&config("xeon-mp"), Some(Box::new(world)), move |d| {
            d.m.set_timer(timer);
            d.post(1, 300);
            assert_eq!(d.received().tag, 1);
        });
        assert_eq!(waits.get(), Some(timer.map(|_| 1_000_000)));
    }
}
