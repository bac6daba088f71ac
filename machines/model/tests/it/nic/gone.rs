//! Cards that are stopped, taken out, or used as they must not be.

use super::*;

#[test]
fn a_card_that_is_stopped_gives_everything_back_once() {
    run(&config("mini-hash"), Some(Box::new(Reflector::default())), |d| {
        (0..5).for_each(|i| d.post(i, 300 + i as u32));
        (0..3).for_each(|i| d.send(100 + i, 200 + i as u32, &frame_to(OTHER, 1000, i as u8)));
        assert_eq!(d.transmitted().tag, 100);
        assert_eq!(d.stop(), (2, 5));
        d.post(9, 300);
        d.send(109, 200, &frame_to(OTHER, 100, 0));
        let stopped = |tag| NicTransmitted { tag, result: Err(NicError::Stopped) };
        assert_eq!(d.nic.take_transmitted(), Some(stopped(109)));
        assert_eq!(
            d.nic.take_received(NicRing::Main),
            Some(NicReceived { tag: 9, result: Err(NicError::Stopped) })
        );
        assert_eq!((d.nic.take_transmitted(), d.nic.take_received(NicRing::Main)), (None, None));
        assert_eq!(d.nic.acknowledge(), NicEvents::default());
    });
}

#[test]
fn what_is_left_with_the_card_is_told_at_the_end() {
    let (m, result) = try_run(&config("mini-hash"), Schedule::Timed, None, |d| d.post(1, 300));
    result.expect("the run ends");
    assert!(m.check().expect_err("a buffer is left").contains("1 buffers were not given back"));
}

#[test]
fn a_card_that_is_taken_out_gives_everything_back_once() {
    // At any time of the way of five frames there and back.
    for at in (0..160).map(|i| i * 500) {
        let far_end: Box<dyn FarEnd> = Box::new(Reflector::default());
        let m = Model::new(&config("mini-hash"), Options::default()).expect("a valid machine");
        m.attach(far_end);
        m.remove_nic_at(Cycles(at));
        m.run(Box::new(|m| {
            let d = Driver::new(m);
            (0..6).for_each(|i| d.post(i, 300 + i as u32));
            (0..5).for_each(|i| d.send(100 + i, 200, &frame_to(OTHER, 1000, i as u8)));
            while !d.wait().removed {}
            let (mut sent, mut back) = (Vec::new(), Vec::new());
            while let Some(done) = d.nic.take_transmitted() {
                sent.push(done);
            }
            while let Some(done) = d.nic.take_received(NicRing::Main) {
                back.push(done);
            }
            assert_eq!(sent.iter().map(|t| t.tag).collect::<Vec<_>>(), [100, 101, 102, 103, 104]);
            assert_eq!(back.iter().map(|t| t.tag).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
            // From some point on nothing works any more.
            assert!(sent.is_sorted_by_key(|t| t.result.is_err()));
            assert!(back.is_sorted_by_key(|t| t.result.is_err()));
            assert!(back.iter().all(|t| t.result.is_ok() || t.result == Err(NicError::Removed)));
            d.post(9, 300);
            assert_eq!(
                d.nic.take_received(NicRing::Main),
                Some(NicReceived { tag: 9, result: Err(NicError::Removed) })
            );
            assert!(d.nic.acknowledge().removed, "it reads so for ever");
            let before = d.interrupts.get();
            d.m.set_timer(Some(d.m.now() + Cycles(1_000_000)));
            d.m.idle_until(&mut || d.ticked.replace(false));
            assert_eq!(d.interrupts.get(), before, "it interrupts no more");
            d.nic.stop();
            None
        }))
        .unwrap_or_else(|e| panic!("removed at {at}: {e}"));
        m.check().expect("the machine's laws hold");
    }
}

#[test]
fn a_card_can_be_taken_out_by_a_test_that_runs() {
    run(&config("mini-soft"), None, |d| {
        d.post(1, 300);
        d.m.remove_nic();
        assert!(d.wait().removed);
        assert_eq!(d.nic.take_received(NicRing::Main).map(|t| t.result), Some(Err(NicError::Removed)));
    });
}

#[test]
fn misuse_panics() {
    let refused = |body: fn(&Driver)| {
        let (_, result) = try_run(&config("mini-hash"), Schedule::Timed, None, body);
        result.expect_err("the card refuses").to_string()
    };
    fn transmit(d: &Driver, fragments: Vec<Fragment>, checksum: Option<NicChecksum>) {
        d.nic.post_transmit(NicTransmit { tag: 1, fragments, checksum });
    }
    fn at(frame: u32, offset: usize, len_bytes: usize) -> Fragment {
        Fragment { frame: Pfn(frame), offset, len_bytes }
    }
    assert!(refused(|d| (0..17).for_each(|i| d.post(i, 300))).contains("which has 0 slots free"));
    assert!(refused(|d| transmit(d, vec![at(1, 0, 20); 9], None)).contains("9 fragments"));
    assert!(refused(|d| transmit(d, vec![at(1, 0, 13)], None)).contains("a frame of 13 bytes"));
    assert!(refused(|d| transmit(d, vec![at(1, 0, 1515)], None)).contains("a frame of 1515 bytes"));
    assert!(refused(|d| transmit(d, vec![at(1, 4000, 97)], None)).contains("is in no frame"));
    assert!(refused(|d| transmit(d, vec![at(1, 0, 20), at(1, 0, 0)], None)).contains("is in no frame"));
    assert!(refused(|d| transmit(d, vec![at(1 << 20, 0, 20)], None)).contains("is in no memory"));
    assert!(
        refused(|d| transmit(d, vec![at(1, 0, 20)], Some(NicChecksum { from: 14, at: 19 })))
            .contains("lies outside")
    );
    assert!(refused(|d| d.nic.set_rings(TRANSMIT, RECEIVE)).contains("set once"));
    assert!(
        refused(|d| d.nic.post_receive(NicRing::Main, NicReceive { tag: 1, header: None, data: vec![] }))
            .contains("no buffer for data")
    );
    let (_, result) = try_run(&config("xeon-up"), Schedule::Timed, None, |d| {
        let header = Some(at(1, 0, 128));
        d.nic.post_receive(NicRing::Main, NicReceive { tag: 1, header, data: vec![at(2, 0, 4096)] });
    });
    assert!(result.expect_err("no split there").to_string().contains("splits no headers off"));
}
