//! This program is both processes: started as a peer, it receives, or is the program of one method.

mod comparing;

use clap::Parser as _;
use pageferry_bench::{Method, Options, Pattern, PeerArguments, Wait, bench};
use std::time::Duration;

/// With these arguments this program is a peer.
fn peer() -> Vec<std::ffi::OsString> {
    vec!["peer".into()]
}

#[derive(clap::Parser)]
enum Program {
    Peer(PeerArguments),
}

const TESTS: &[(&str, fn())] = &[
    ("every_method_brings_every_message", every_method_brings_every_message),
    ("a_method_that_goes_wrong_is_told_of", comparing::a_method_that_goes_wrong_is_told_of),
    ("a_signal_ends_a_comparison_in_good_order", comparing::a_signal_ends_a_comparison_in_good_order),
    ("without_peers_it_says_what_to_run", comparing::without_peers_it_says_what_to_run),
];

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.first().map(String::as_str) {
        Some("peer") => {
            let Program::Peer(peer_arguments) = Program::parse();
            peer_arguments.run(&peer()).expect("it is told what to do");
        }
        Some("compare") => comparing::compare_for_ever(words[1].as_ref()),
        Some("--list") => TESTS.iter().for_each(|(name, _)| println!("{name}: test")),
        _ => {
            // Options of the usual test programs are not for this one.
            let wanted = words.iter().find(|word| !word.starts_with('-'));
            for (name, test) in TESTS {
                if wanted.is_none_or(|wanted| name.contains(wanted.as_str())) {
                    test();
                    println!("{name}: ok");
                }
            }
        }
    }
}

/// The bench itself looks at what arrives, so that it ends is the proof.
fn every_method_brings_every_message() {
    let options = Options {
        sizes: vec![64 << 10, 3 << 20],
        // Sides that spin take very long on a host whose CPUs others use.
        waits: vec![Wait::Sleep],
        repetitions: 7,
        turn: Duration::from_micros(1),
        ..Options::new(peer())
    };
    let mut steps = 0;
    let report = bench(&options, &mut |_| steps += 1).expect("all messages arrive as they were sent");
    assert!(steps > 0);
    for series in &report.series {
        assert_eq!(series.nanos.len(), 7);
        assert!(series.nanos.iter().all(|&nanos| nanos > 0.0), "{series:?}");
        assert!(report.series(Method::Floor, series.bytes, series.pattern, series.wait).is_some());
    }
    let methods = [Method::Floor, Method::Pipe, Method::Unix, Method::Shm, Method::Loan, Method::CopyBuffer];
    for method in methods {
        let found = report.series(method, 3 << 20, Pattern::Refilled, Wait::Sleep);
        assert!(found.is_some(), "{method:?} was not measured: {:?}", report.notes);
    }
    let mut csv = Vec::new();
    report.csv(&mut csv).unwrap();
    assert_eq!(csv.iter().filter(|&&byte| byte == b'\n').count(), report.series.len() + 1);
    assert!(report.text().contains("refilled + read, sleep"), "{}", report.text());
    println!("{} series", report.series.len());
}
