//! This program is both processes: started as a peer, it receives.

use pageferry_bench::{Method, Options, Pattern, Wait, bench, peer};
use std::time::Duration;

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("peer") => peer(),
        Some("--list") => println!("every_method_brings_every_message: test"),
        _ => every_method_brings_every_message(),
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
        ..Options::new(vec!["peer".into()])
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
    println!("every_method_brings_every_message: ok, {} series", report.series.len());
}
