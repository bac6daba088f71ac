//! When things happen, how often, and what that leaves in caches.

use super::*;

#[test]
fn frames_follow_each_other_as_fast_as_the_wire_goes() {
    // Eight bytes before a frame, four and a gap of twelve behind it: 1538 are 12.304 us at 1 Gb/s.
    for (name, len, each_ps) in [
        ("xeon-mp", 1514, 12_304_000),
        ("xeon-mp", 60, 672_000),
        ("xeon-mp", 20, 672_000),
        ("opteron-mp", 100, 992_000),
        ("today", 1514, 492_160),
        ("today", 60, 26_880),
        ("pentium-pro", 1514, 123_040_000),
        ("ppc603", 1514, 1_230_400_000),
        ("mini-soft", 1514, 12_304_000),
    ] {
        let sink = Sink::default();
        let seen = sink.clone();
        run(&config(name), Some(Box::new(sink)), move |d| {
            let fragments = vec![Fragment { frame: Pfn(200), offset: 0, len_bytes: len }];
            for tag in 0..15 {
                d.nic.post_transmit(NicTransmit { tag, fragments: fragments.clone(), checksum: None });
            }
            d.nic.start_transmit();
            (0..15).for_each(|tag| assert_eq!(d.transmitted().tag, tag));
        });
        let sunk = seen.sunk();
        assert_eq!((sunk.frames, sunk.bytes), (15, 15 * len.max(60) as u64));
        let (first, last) = (sunk.first_at_ns.expect("one"), sunk.last_at_ns.expect("one"));
        assert_eq!((last - first).abs_diff(14 * each_ps / 1000) / 2, 0, "{name}, {len}: {}", last - first);
    }
}

#[test]
fn a_frame_is_seen_when_its_time_has_come_whether_cpus_run_or_not() {
    let seen = |busy: bool| {
        let frame = frame_to(CARD, 1514, 3);
        let at = Rc::new(Cell::new(0));
        let told = at.clone();
        run(&config("xeon-mp"), Some(Script::of([(50_000, frame)])), move |d| {
            d.post(1, 300);
            if busy {
                d.polled()
            } else {
                d.received()
            };
            told.set(d.m.now().0);
        });
        at.get()
    };
    // 50 us until it is sent, 12.304 on the wire, 1.9 over the bus at 800 MB/s and 0.6 until that begins.
    let due = (50_000 + 12_304 + 1_530 * 1000 / 800 + 600) * 24 / 10;
    let (busy, waiting) = (seen(true), seen(false));
    assert!((due..due + 4_000).contains(&busy), "{busy} for {due}");
    // An interrupt costs something, and the acknowledgement too.
    assert!((due..due + 12_000).contains(&waiting), "{waiting} for {due}");
}

#[test]
fn frames_arrive_at_a_cpu_that_does_not_wait_and_at_one_with_interrupts_off() {
    let frames = (0..4).map(|i| (i * 100_000, frame_to(CARD, 100, i as u8)));
    run(&config("xeon-mp"), Some(Script::of(frames)), |d| {
        (0..4).for_each(|i| d.post(i, 300 + i as u32));
        assert_eq!(d.polled().tag, 0);
        let lock = d.m.new_lock(LockClass::new("quiet", 1).masking_interrupts(), ());
        let held = lock.lock();
        let before = d.interrupts.get();
        (1..4).for_each(|i| assert_eq!(d.polled().tag, i));
        assert_eq!(d.interrupts.get(), before);
        drop(held);
        assert!(d.m.now() < Cycles(2400 * 310), "{:?}", d.m.now());
    });
}

#[test]
fn interrupts_come_no_more_often_than_they_may() {
    // 40 frames take 492 us; 125 us are between two interrupts.
    let frames = || Script::of((0..40).map(|i| (0, frame_to(CARD, 1514, i))));
    let m = run(&config("xeon-mp"), Some(frames()), |d| {
        (0..40).for_each(|i| d.post(i, 300 + i as u32));
        (0..40).for_each(|i| assert_eq!(d.received().tag, i));
    });
    assert_eq!(m.nic_statistics().interrupts, 5);
    let m = run(&config("xeon-mp"), Some(frames()), |d| {
        (0..40).for_each(|i| d.post(i, 300 + i as u32));
        (0..40).for_each(|i| assert_eq!(d.polled().tag, i));
        // All that while it was not acknowledged, and stood for everything.
        assert_eq!(d.interrupts.get(), 1);
        assert_eq!(d.nic.acknowledge(), NicEvents { received: true, ..NicEvents::default() });
        assert_eq!(d.nic.acknowledge(), NicEvents::default());
    });
    assert_eq!(m.nic_statistics().interrupts, 1);
    let mut unmoderated = config("xeon-mp");
    unmoderated.nic.as_mut().expect("a card").interrupt_gap_ns.value = 0;
    let m = run(&unmoderated, Some(frames()), |d| {
        (0..40).for_each(|i| d.post(i, 300 + i as u32));
        (0..40).for_each(|i| {
            d.wait();
            assert_eq!(d.nic.take_received(NicRing::Main).expect("one for each").tag, i);
        });
    });
    assert_eq!(m.nic_statistics().interrupts, 40);
}

#[test]
fn registers_cost_what_the_file_says() {
    let cost = |act: fn(&Driver)| {
        let cycles = Rc::new(Cell::new(0));
        let told = cycles.clone();
        run(&config("xeon-up"), None, move |d| {
            let before = d.m.now();
            act(d);
            told.set((d.m.now() - before).0);
        });
        cycles.get()
    };
    assert_eq!(cost(|d| assert!(!d.nic.acknowledge().removed)), 2400);
    assert_eq!(cost(|d| d.nic.start_receive(NicRing::Main)), 192);
    assert_eq!(cost(|d| d.nic.start_transmit()), 192);
}

#[test]
fn what_the_card_writes_is_in_no_cache_and_what_it_reads_stays() {
    for name in ["xeon-mp", "opteron-mp", "ppc604"] {
        run(&config(name), Some(Box::new(Reflector::default())), |d| {
            let memory = d.cost_of_access(900);
            for frame in [200, 300] {
                d.m.pt_store(Pfn(frame).pa(), Width::Four, 1);
                assert!(d.cost_of_access(frame) * 4 < memory);
            }
            d.post(1, 300);
            d.send(1, 200, &frame_to(OTHER, 1000, 0));
            assert_eq!((d.transmitted().tag, d.received().tag), (1, 1));
            assert!(d.cost_of_access(200) * 4 < memory, "what was sent is still there");
            assert_eq!(d.cost_of_access(300), memory, "what has arrived is not");
            assert!(d.cost_of_access(300) * 4 < memory);
        });
    }
}

#[test]
fn bytes_go_as_they_are_when_the_frame_has_been_sent() {
    let sink = Sink::default();
    let seen = sink.clone();
    run(&config("xeon-mp"), Some(Box::new(sink)), |d| {
        d.send(1, 200, &frame_to(OTHER, 100, 0));
        d.m.poke_frame(Pfn(200), 50, b"written too late");
        d.transmitted();
    });
    assert_eq!(seen.sunk().last[50..66], *b"written too late");
}
