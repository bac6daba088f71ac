//! Where curves bend, and that they bend there because of the caches: a machine with other caches bends them elsewhere,
//! and nothing else about it was changed.
//!
//! What is looked at is mostly not bandwidth but what copying a byte costs, in cycles: it knows nothing of system calls
//! and switches, of which larger buffers have fewer. A knee is the smallest size at which that is nearer to what it
//! costs far beyond than to what it costs well below.

use pageferry_lab::Registry;
use pageferry_lab::files::{KernelChoice, MachineChoice, Settings};
use pageferry_lab::record::Record;
use pageferry_lab::run::{Choices, RunSpec};
use std::sync::Arc;

const KB: u64 = 1024;

/// A quick run on `pentium-pro`, but for what is set.
fn run(experiment: &str, settings: &[&str], size: u64) -> Record {
    let size = format!("size_bytes={size}");
    let settings: Vec<&str> = settings.iter().copied().chain([size.as_str()]).collect();
    let experiment = Arc::new(Registry::standard().experiment(experiment).expect("embedded"));
    let machine = MachineChoice::find("pentium-pro").expect("embedded");
    let kernel = KernelChoice::find("uvm").expect("embedded");
    let choices = Choices { quick: true, ..Choices::default() };
    let settings = Settings::parse(&settings).expect("settings");
    let spec =
        RunSpec::new(&Registry::standard(), &experiment, machine, kernel, &settings, choices).expect("a run");
    let record = pageferry_lab::run::run(&spec).unwrap_or_else(|e| panic!("{e}")).record;
    assert_eq!(record.broken(), Vec::<String>::new(), "{}", spec.title());
    record
}

fn bandwidth(record: &Record) -> f64 {
    record.metric("bandwidth_mb_s").expect("measured")
}

/// What copying a byte costs.
fn byte_cycles(record: &Record) -> f64 {
    record.metric("cycles.copy").expect("a cause") / record.metric("bytes_copied").expect("counted")
}

/// The powers of two from `min` to `max`.
fn sizes(min: u64, max: u64) -> Vec<u64> {
    std::iter::successors(Some(min), |size| Some(2 * size)).take_while(|size| *size <= max).collect()
}

/// Where the knee between these sizes is, with the cache `level` of so many bytes.
fn knee(experiment: &str, settings: &[&str], level: &str, cache_bytes: u64, (min, max): (u64, u64)) -> u64 {
    let cache = format!("machine.cache.{level}.size_bytes={cache_bytes}");
    let settings: Vec<&str> = settings.iter().copied().chain([cache.as_str()]).collect();
    let costs: Vec<(u64, f64)> = sizes(min, max)
        .into_iter()
        .map(|size| (size, byte_cycles(&run(experiment, &settings, size))))
        .collect();
    let (below, beyond) = (costs[0].1, costs[costs.len() - 1].1);
    assert!(beyond > 2.0 * below, "{experiment}, {level} of {cache_bytes} bytes: no knee in {costs:?}");
    let half = (below + beyond) / 2.0;
    costs.iter().find(|(_, cost)| *cost > half).expect("the last is").0
}

/// UVM paper, 5.2: from first-level to second-level cache to memory.
#[test]
fn copying_from_a_null_socket_drops_where_two_buffers_leave_a_cache() {
    let at = |size: u64| bandwidth(&run("null-read", &["receive=copy"], size));
    let (page, level): (f64, Vec<f64>) = (at(4 * KB), sizes(8 * KB, 64 * KB).into_iter().map(at).collect());
    assert!(
        level.iter().all(|b| *b < page / 1.25),
        "two pages are all of the first level: {page}, then {level:?}"
    );
    let (min, max) =
        (level.iter().copied().fold(f64::MAX, f64::min), level.iter().copied().fold(0.0, f64::max));
    // What a read takes once is a sixth of its time at 8 KB, and makes the curve rise.
    assert!(max < 1.25 * min, "as long as all is in the second level: {level:?}");
    let cost = |size: u64| byte_cycles(&run("null-read", &["receive=copy"], size));
    let (first, others) = (cost(8 * KB), sizes(16 * KB, 64 * KB).into_iter().map(cost));
    // But for the lines that the kernel takes for itself.
    assert!(first > 2.5 * cost(4 * KB), "two pages are all of the first level: {first} a byte beyond it");
    others
        .for_each(|other| assert!((other / first - 1.0).abs() < 0.02, "a byte costs {first}, then {other}"));
    let (inside, outside) = (at(128 * KB), at(256 * KB));
    assert!(inside > 0.8 * min && outside < 0.3 * min, "{inside} fits, {outside} does not: {level:?}");
    assert!((outside / at(1024 * KB) - 1.0).abs() < 0.1, "beyond the caches nothing more is lost");
}

#[test]
fn the_knees_of_a_read_are_where_the_caches_are_and_move_with_them() {
    let copy = &["receive=copy"];
    for (l1, expected) in [(8, 8), (32, 32)] {
        let found = knee("null-read", copy, "L1", l1 * KB, (4 * KB, 64 * KB)) / KB;
        assert_eq!(
            found, expected,
            "source and destination are twice the size: of {l1} KB in the first level"
        );
    }
    for (l2, expected) in [(128, 128), (256, 256), (512, 512)] {
        let found = knee("null-read", copy, "L2", l2 * KB, (16 * KB, 1024 * KB)) / KB;
        assert_eq!(found, expected, "likewise of {l2} KB in the second level");
    }
}

/// Writer's buffer, clusters and reader's buffer are three times the size.
#[test]
fn the_knees_of_a_pipe_are_where_three_buffers_leave_a_cache() {
    let copy = &["send=copy", "receive=copy"];
    for (l1, expected) in [(16, 8), (32, 16)] {
        let found = knee("uvm-pipe", copy, "L1", l1 * KB, (4 * KB, 64 * KB)) / KB;
        assert_eq!(found, expected, "{l1} KB of first level");
    }
    for (l2, expected) in [(128, 64), (256, 128), (512, 256)] {
        let found = knee("uvm-pipe", copy, "L2", l2 * KB, (16 * KB, 1024 * KB)) / KB;
        assert_eq!(found, expected, "{l2} KB of second level");
    }
    let at = |size: u64| bandwidth(&run("uvm-pipe", copy, size * KB));
    assert!(at(128) < 0.5 * at(64), "fewer switches do not make up for it");
}

/// The buffers of both processes are twice the size; what is under way between them is little.
#[test]
fn the_knees_of_a_socket_are_where_two_buffers_leave_a_cache() {
    let socket = &["by=socket", "touch=false"];
    for (l2, expected) in [(128, 128), (256, 256), (512, 512)] {
        let found = knee("ping-pong", socket, "L2", l2 * KB, (16 * KB, 1024 * KB)) / KB;
        assert_eq!(found, expected, "{l2} KB of second level");
    }
    let at = |size: u64| bandwidth(&run("ping-pong", socket, size * KB));
    assert!(at(256) < 0.75 * at(128));
}

/// By transfer no data is touched, but of the kernel's structures some hundred bytes for each page are, and as much of
/// an mbuf where the answer is clusters: so a cache is left at some thirty or fifteen times its size. Leaving the first
/// level bends nothing, as the second is nearly as near.
#[test]
fn reading_by_transfer_dips_where_the_kernels_structures_leave_a_cache() {
    let gain = |answers: &str, cache: &str, size: u64| {
        let set = ["receive=transfer", &format!("kernel.socket.null_answers={answers}"), cache];
        let at = |size: u64| bandwidth(&run("null-read", &set, size * KB));
        at(size) / at(size / 2)
    };
    let l2 = |kb: u64| format!("machine.cache.L2.size_bytes={}", kb * KB);
    for (answers, knee) in [("memory", 2048), ("clusters", 1024)] {
        assert!(gain(answers, &l2(64), knee / 2) > 0.99 && gain(answers, &l2(64), knee) < 0.98, "{answers}");
        assert!(gain(answers, &l2(128), knee) > 0.99, "{answers}");
        assert!(gain(answers, &l2(128), 2 * knee) < 0.98, "{answers}");
        assert!(gain(answers, &l2(256), 2 * knee) > 0.99, "{answers}");
        // Were the second level farther away, it would be the first whose leaving is seen, and earlier.
        assert!(gain(answers, "machine.cache.L2.latency_cycles=50", knee / 4) < 0.98, "{answers}");
        assert!(gain(answers, "machine.cache.L2.latency_cycles=7", knee / 4) > 1.0, "{answers}");
    }
}

/// UVM paper, 5.2: at one page a copy is faster, and page transfer wins long before the copy leaves the caches for
/// good.
#[test]
fn transfer_overtakes_copying_between_a_page_and_128_kb() {
    let gain = |size: u64| {
        let by = |how: &str| bandwidth(&run("null-read", &[how], size * KB));
        by("receive=transfer") / by("receive=copy")
    };
    assert!(gain(4) < 0.75);
    assert!(gain(128) > 1.25);
}

/// UVM paper, 5.4: what touching costs follows from the rates of copying with and without it, and bounds passing that
/// is touched. It costs as much after a pass, and what mapping each page at its first touch takes.
#[test]
fn touching_costs_the_same_however_the_data_came() {
    let extra = |by: &str| {
        let cycles = |touch: &str| {
            let record = run("ping-pong", &[by, touch], 4096 * KB);
            record.metric("elapsed_cycles_per_transfer").expect("measured")
        };
        cycles("touch=true") - cycles("touch=false")
    };
    let (socket, pass) = (extra("by=socket"), extra("by=pass"));
    assert!((1.0..1.25).contains(&(pass / socket)), "{pass} cycles a transfer by pass, {socket} by socket");
}
