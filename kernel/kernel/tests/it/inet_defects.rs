//! Planted defects of the Internet protocols: each is caught by what is there for it, and the same program passes
//! without it.

use crate::common::far::*;
use crate::common::puppet::*;
use crate::common::*;
use pageferry_hal::*;
use pageferry_kernel::*;
use pageferry_model::Schedule;
use pageferry_model::net::Wire;

const PAGE: usize = PAGE_SIZE;

fn with(defect: Planted<NetDefect>) -> KernelConfig {
    let mut config = internet();
    let net = config.net.as_mut().expect("it has one");
    (net.defect, net.retransmissions) = (defect, 6);
    config
}

/// What is wrong behind a run, if anything.
fn complaint(ended: &Ended) -> Result<(), String> {
    ended.result.as_ref().map_err(ToString::to_string)?;
    ended.kernel.as_ref().expect("it booted").check_quiescent()
}

/// `program` says what is wrong with a kernel with a defect, and nothing of one without.
fn is_caught(defect: Planted<NetDefect>, program: impl Fn(KernelConfig) -> Result<(), String>) {
    let sound = program(with(Planted::NONE));
    assert_eq!(sound, Ok(()), "a sound kernel");
    let caught = program(with(defect));
    assert!(caught.is_err(), "{defect:?}: not caught");
}

/// Two hosts talk, over such a wire.
fn talk(wire: Wire) -> impl Fn(KernelConfig) -> Result<(), String> {
    talk_in(9000, wire)
}

/// As [`talk`], with so many bytes a call.
fn talk_in(chunk: usize, wire: Wire) -> impl Fn(KernelConfig) -> Result<(), String> {
    let plan = Plan { echoed: 150_000, heard: 60_000, answered: 60_000, chunk, closes_first: false };
    move |config| {
        let (ended, heard) = try_converse_on("xeon-mp", Schedule::Timed, config, wire, plan, |_| ());
        complaint(&ended)?;
        heard
    }
}

/// A connection that they have made, and its hand.
fn by_hand(test: fn(&U, Fd, Hand)) -> impl Fn(KernelConfig) -> Result<(), String> {
    move |config| {
        let (m, puppet) = on_strings("xeon-mp");
        complaint(&try_run_on(m, "xeon-mp", config, move |u| {
            let listening = our_server(u, 4);
            let hand = Hand::call(u, &puppet, 1234, OUR_PORT, u32::MAX - 20);
            let (fd, _) = u.accept(listening).expect("it is there");
            u.set_nonblocking(fd, true).expect("open");
            test(u, fd, hand);
        }))
    }
}

#[test]
fn frames_that_are_freed_too_early_are_damaged() {
    if other_kind().is_some() {
        return; // A slow CPU uses the memory again when the card has long read it.
    }
    // A long wire: many segments leave at once, and each is put together where the one before it was. Whether the card
    // still reads that is a matter of chance, but not for all of these calls.
    is_caught(NetDefect::FreedWhileSent.into(), |config| {
        let wire = Wire { delay_ns: 2_000_000, ..Wire::default() };
        [9000, 20_000, 40_000, 60_000].into_iter().try_for_each(|chunk| talk_in(chunk, wire)(config))
    });
}

#[test]
fn flipped_bits_come_through_without_sums() {
    // Which bits are flipped is a matter of chance: those of some wire are data.
    is_caught(NetDefect::SumsIgnored.into(), |config| {
        (3..9).try_for_each(|seed| talk(Wire { seed, corrupt_ppm: 20_000, ..Wire::default() })(config))
    });
}

#[test]
fn numbers_that_do_not_wrap_stop_a_connection() {
    is_caught(NetDefect::OrderWithoutWrap.into(), |mut config| {
        config.net.as_mut().expect("it has one").initial_sequence = u32::MAX - 5000;
        talk(Wire::default())(config)
    });
}

#[test]
fn what_is_sent_again_is_compared() {
    is_caught(
        NetDefect::AgainFromElsewhere.into(),
        talk(Wire { seed: 1, loss_ppm: 20_000, ..Wire::default() }),
    );
}

#[test]
fn what_comes_twice_is_compared() {
    let wire = Wire { seed: 1, duplicate_ppm: 100_000, delay_ns: 20_000, ..Wire::default() };
    is_caught(NetDefect::DuplicateDelivered.into(), talk(wire));
}

#[test]
fn what_comes_too_early_is_compared() {
    let wire = Wire { seed: 1, reorder_ppm: 100_000, reorder_ns: 100_000, ..Wire::default() };
    is_caught(NetDefect::EarlyAsInOrder.into(), talk(wire));
}

#[test]
fn a_writer_that_is_not_woken_sleeps_for_ever() {
    // A long wire: the buffer is full before anything is acknowledged, however slow the CPU is.
    is_caught(NetDefect::WriterNotWoken.into(), talk(Wire { delay_ns: 5_000_000, ..Wire::default() }));
}

#[test]
fn buffers_that_the_card_keeps_are_counted() {
    is_caught(NetDefect::BuffersLeftWithCard.into(), talk(Wire::default()));
}

#[test]
fn a_length_that_is_believed_reads_behind_the_packet() {
    is_caught(
        NetDefect::LengthBelieved.into(),
        by_hand(|u, _, hand| {
            let mut packet = hand.seg(ACK, &[]).packet();
            packet[12] = 0xf0;
            hand.puppet.send(ip(6, &with_sum(6, packet, 16)));
            u.sleep_for(Cycles(3 * MS.0)).expect("alive");
            assert_eq!(u.kernel().net_counts().malformed, 1);
        }),
    );
}

#[test]
fn a_window_that_is_not_told_is_missed() {
    is_caught(
        NetDefect::WindowUntold.into(),
        by_hand(|u, fd, mut hand| {
            let at = map(u, 64 << 10);
            for _ in 0..40 {
                hand.say(ACK, &[7; 1400]);
            }
            hand.hear(u);
            u.sleep_for(Cycles(200 * MS.0)).expect("alive");
            hand.hear(u);
            read_all(u, fd, at, 64 << 10, 40 * 1400);
            assert!(hand.hear(u).iter().any(|seg| seg.window > 50_000), "the window is told");
        }),
    );
}

#[test]
fn a_fin_before_the_data_ends_too_early() {
    is_caught(
        NetDefect::FinBeforeData.into(),
        by_hand(|u, fd, mut hand| {
            let at = map(u, PAGE);
            hand.say_at(hand.seq.wrapping_add(5), FIN | ACK, &[]);
            hand.hear(u);
            assert_eq!(u.read(fd, at, PAGE), Err(Errno::WouldBlock));
        }),
    );
}

#[test]
fn a_window_beyond_the_buffer_is_filled() {
    is_caught(
        NetDefect::WindowBeyondBuffer.into(),
        by_hand(|u, _, mut hand| {
            let mut window = 60_000_usize;
            while window > 0 {
                let len = window.min(1400);
                hand.say(ACK, &vec![7; len]);
                window -= len;
                if let Some(seg) = hand.hear(u).last() {
                    window = usize::from(seg.window).saturating_sub(hand.seq.wrapping_sub(seg.ack) as usize);
                }
                u.kernel().check().expect("the laws hold");
            }
        }),
    );
}

#[test]
fn what_is_lost_on_a_reset_is_counted() {
    is_caught(
        NetDefect::EarlyLostOnReset.into(),
        by_hand(|u, _, mut hand| {
            hand.say_at(hand.seq.wrapping_add(100), ACK, &[7; 300]);
            hand.hear(u);
            hand.say(RST, &[]);
            hand.hear(u);
        }),
    );
}

#[test]
fn a_reset_from_anywhere_is_not_for_us() {
    is_caught(
        NetDefect::ResetAnywhere.into(),
        by_hand(|u, fd, mut hand| {
            let at = map(u, PAGE);
            hand.say_at(hand.seq.wrapping_sub(1), RST, &[]);
            hand.hear(u);
            assert_eq!(u.read(fd, at, PAGE), Err(Errno::WouldBlock));
        }),
    );
}

#[test]
fn an_answer_that_nobody_asked_for_leads_elsewhere() {
    is_caught(
        NetDefect::AnswerUnasked.into(),
        by_hand(|u, fd, mut hand| {
            let at = map(u, PAGE);
            hand.puppet.send(arp(2, [2, 0, 0, 0, 0, 99], FAR_ADDRESS));
            hand.hear(u);
            assert_eq!(u.write(fd, at, 5), Ok(5));
            u.sleep_for(Cycles(3 * MS.0)).expect("alive");
            assert!(hand.puppet.take().iter().all(|frame| frame[..6] == STATION));
        }),
    );
}

#[test]
fn what_is_sent_has_an_alarm() {
    is_caught(
        NetDefect::AlarmNotMoved.into(),
        by_hand(|u, fd, _| {
            let at = map(u, PAGE);
            assert_eq!(u.write(fd, at, 5), Ok(5));
            u.kernel().check().expect("the laws hold");
        }),
    );
}

#[test]
fn a_connection_that_has_ended_is_not_accepted() {
    is_caught(NetDefect::EndedStaysToAccept.into(), |config| {
        let (m, puppet) = on_strings("xeon-mp");
        complaint(&try_run_on(m, "xeon-mp", config, move |u| {
            let listening = our_server(u, 4);
            let mut hand = Hand::call(u, &puppet, 1234, OUR_PORT, 77);
            hand.say(RST, &[]);
            hand.hear(u);
            u.kernel().check().expect("the laws hold");
            u.set_nonblocking(listening, true).expect("open");
            assert_eq!(u.accept(listening).map(drop), Err(Errno::WouldBlock));
        }))
    });
}
