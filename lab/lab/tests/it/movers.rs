//! What the UVM paper describes and does not measure: each way does what it says, and leaves the maps as it should.

use pageferry_lab::Registry;
use pageferry_lab::files::{KernelChoice, MachineChoice, Settings};
use pageferry_lab::record::Record;
use pageferry_lab::run::{Choices, RunSpec, Schedule};
use std::sync::Arc;

fn try_run(experiment: &str, machine: &str, settings: &[&str]) -> Result<Record, String> {
    try_run_under("uvm", experiment, machine, settings)
}

fn try_run_under(kernel: &str, experiment: &str, machine: &str, settings: &[&str]) -> Result<Record, String> {
    let choices = Choices { quick: true, schedule: Schedule::Timed, ..Choices::default() };
    let experiment = Arc::new(Registry::standard().experiment(experiment).expect("there is one"));
    let machine = MachineChoice::find(machine).expect("there is one");
    let kernel = KernelChoice::find(kernel).expect("there is one");
    let settings = Settings::parse(settings).expect("they are well formed");
    let spec = RunSpec::new(&Registry::standard(), &experiment, machine, kernel, &settings, choices)
        .map_err(|e| e.to_string())?;
    pageferry_lab::run::run(&spec).map(|result| result.record).map_err(|e| e.to_string())
}

fn run(experiment: &str, machine: &str, settings: &[&str]) -> Record {
    let record = try_run(experiment, machine, settings).unwrap_or_else(|e| panic!("{settings:?}: {e}"));
    assert_eq!(record.broken(), Vec::<String>::new(), "{} {settings:?}", record.title());
    record
}

fn is(record: &Record, metric: &str) -> f64 {
    record.metric(metric).unwrap_or_else(|| panic!("{} has no {metric}", record.title()))
}

const MODES: [&str; 5] = ["by=share", "by=copy", "by=donate", "by=donate-zero", "by=loan"];

/// Two rounds of 16 pages.
const PAGES: u64 = 32;

#[test]
fn a_mode_copies_and_clears_what_it_says() {
    for (mode, copied, cleared) in [
        ("by=share", 0, 0),
        ("by=copy", PAGES, 0),
        ("by=donate", 0, PAGES),
        ("by=donate-zero", 0, PAGES),
        ("by=loan", PAGES, 0),
    ] {
        let record = run("pass-modes", "pentium-pro", &[mode, "touch=write"]);
        let count = |name: &str| record.counters[name];
        assert_eq!((count("cow_copies"), count("zero_fills")), (copied, cleared), "{mode}");
        let record = run("pass-modes", "pentium-pro", &[mode, "touch=read"]);
        assert_eq!((record.counters["cow_copies"], record.counters["zero_fills"]), (0, cleared), "{mode}");
    }
}

/// UVM paper, 3 and 4.3.1: passing cuts the sender's entry, a loan does not.
#[test]
fn what_is_left_of_the_senders_map() {
    for (mode, added, left) in [
        ("by=share", 0.0, 0.0),
        ("by=copy", 0.0, 2.0),
        ("by=donate", -1.0, 1.0),
        ("by=donate-zero", 0.0, 2.0),
        ("by=loan", 0.0, 0.0),
    ] {
        let record = run("pass-modes", "pentium-pro", &[mode, "part=middle"]);
        let found = (is(&record, "sender_entries_added"), is(&record, "sender_entries_left"));
        assert_eq!(found, (added, left), "{mode}");
        let borrowed = if mode == "by=loan" { 0.0 } else { 1.0 };
        assert_eq!(is(&record, "receiver_entries_added"), borrowed, "{mode}");
    }
}

#[test]
fn every_way_is_sound_on_other_machines() {
    for machine in ["mini-soft", "ppc603", "sh7751r", "xeon-mp", "today"] {
        for mode in MODES {
            for meanwhile in ["meanwhile=false", "meanwhile=true"] {
                run(
                    "pass-modes",
                    machine,
                    &[mode, meanwhile, "touch=write", "part=middle", "size_bytes=16384"],
                );
            }
        }
        for by in ["by=quick", "by=share"] {
            for rw in ["rw=read", "rw=write"] {
                run("quick-reference", machine, &[by, rw, "memory=untouched", "look_bytes=8192"]);
            }
        }
        for to in ["to=given", "to=area"] {
            for dispose in ["dispose=anflush", "dispose=munmap"] {
                run("transfer-area", machine, &[to, dispose, "kept=3", "size_bytes=16384"]);
            }
        }
        for by in ["by=write", "by=transfer-write", "by=shared", "by=lend", "by=give"] {
            run("push-down", machine, &[by, "touch=true", "size_bytes=16384"]);
        }
    }
}

/// UVM paper, 4.3.1: quick references leave the source's map as it is. Passing does not, where the memory was never
/// touched: each piece gets an amap of its own.
#[test]
fn quick_references_cut_nothing() {
    let added = |by: &str, memory: &str| {
        let record = run("quick-reference", "pentium-pro", &[by, memory]);
        (is(&record, "source_entries_added"), is(&record, "holder_entries_added"))
    };
    for memory in ["memory=written", "memory=untouched"] {
        assert_eq!(added("by=quick", memory), (0.0, 0.0), "{memory}");
    }
    assert!(added("by=share", "memory=untouched").0 >= 16.0, "of 16 looks");
    let told =
        try_run("quick-reference", "pentium-pro", &["by=copy", "rw=write"]).expect_err("it would be lost");
    assert!(told.contains("expected rw=read"), "{told}");
}

/// UVM paper, 4.2.2: anflush keeps the amap, so that a page that comes next costs less.
#[test]
fn where_pages_go_and_how_they_are_given_up() {
    let at = |to: &str, dispose: &str| run("transfer-area", "pentium-pro", &[to, dispose, "size_bytes=4096"]);
    let bandwidth = |to: &str, dispose: &str| is(&at(to, dispose), "bandwidth_mb_s");
    assert!(bandwidth("to=given", "dispose=anflush") > bandwidth("to=given", "dispose=munmap"));
    assert!(bandwidth("to=area", "dispose=anflush") > bandwidth("to=area", "dispose=munmap"));
    assert_eq!(is(&at("to=area", "dispose=anflush"), "entries_added"), 0.0);
    let told = try_run("transfer-area", "pentium-pro", &["to=area", "dispose=replace"]).expect_err("refused");
    assert!(told.contains("expected to=given"), "{told}");
}

#[test]
fn pages_that_are_pushed_down_are_not_copied() {
    let copied = |by: &str| run("push-down", "pentium-pro", &[by]).counters["bytes_copied"];
    let size = PAGES * 4096;
    assert_eq!(["by=write", "by=transfer-write", "by=shared"].map(copied), [2 * size, size, size]);
    assert_eq!(["by=lend", "by=give"].map(copied), [0, 0]);
    // What is read where it was received is there by a loan, and has to be mapped from the file where it was given.
    let faults = |by: &str| run("push-down", "pentium-pro", &[by, "touch=true"]).counters["page_faults"];
    assert!(faults("by=lend") < faults("by=give"));
}

/// UVM paper, 5.1: behind a card a loan is less load of the processor, and no more bandwidth.
#[test]
fn behind_a_card_a_loan_is_less_load() {
    let at = |send: &str, sums: &str| {
        run("card-send", "pentium-pro", &[send, &format!("machine.nic.transmit_checksum={sums}")])
    };
    for sums in ["false", "true"] {
        let (copy, loan) = (at("send=copy", sums), at("send=loan", sums));
        assert!(is(&loan, "cpu_percent") < is(&copy, "cpu_percent"), "{sums}");
        assert!(is(&loan, "wire_percent") > 90.0 && is(&copy, "wire_percent") > 90.0, "{sums}");
        // Headers are copied either way.
        assert!(loan.counters["bytes_copied"] * 10 < copy.counters["bytes_copied"], "{sums}");
    }
    assert!(is(&at("send=loan", "true"), "cpu_percent") < is(&at("send=loan", "false"), "cpu_percent"));
}

/// UVM paper, 5.5 and 2.3: what each design copies, clears and faults for, of two deliveries of 16 pages.
#[test]
fn the_relatives_do_what_their_designs_say() {
    let at = |by: &str, touch: &str| run("relatives", "pentium-pro", &[by, touch]);
    for (by, copies) in [
        ("by=copy", 2),
        ("by=loan", 1),
        ("by=transfer", 1),
        ("by=both", 0),
        ("by=tcow", 1),
        ("by=tcow-aligned", 0),
        ("by=container-send", 1),
        ("by=container-receive", 1),
        ("by=container", 0),
        ("by=fbuf-volatile", 0),
        ("by=fbuf", 0),
        ("by=fbuf-uncached", 0),
        ("by=mach-copy", 0),
        ("by=mach-move", 0),
    ] {
        let record = at(by, "touch=false");
        // Beside the data there are messages of eight bytes, each copied twice.
        let copied = record.counters["bytes_copied"];
        assert_eq!(copied / 4096, copies * PAGES, "{by}: {copied} bytes");
        let makes_new = by == "by=fbuf-uncached" || by == "by=mach-move";
        assert_eq!(record.counters["zero_fills"], if makes_new { PAGES } else { 0 }, "{by}");
        at(by, "touch=true");
    }
    // A page that the receiver keeps is copied when its sender fills it again.
    assert_eq!(at("by=tcow-aligned", "touch=true").counters["cow_copies"], PAGES);
    assert_eq!(at("by=both", "touch=true").counters["cow_copies"], 0);
    for machine in ["mini-soft", "ppc603", "sh7751r", "today"] {
        for by in
            ["by=both", "by=container", "by=container-send", "by=fbuf", "by=fbuf-uncached", "by=mach-copy"]
        {
            run("relatives", machine, &[by, "touch=true"]);
        }
    }
}

/// UVM paper, 4.1.1 and 4.1.2: the published locks, and one step in their place, bring the same bytes. They cost more
/// on a multiprocessor, also where nobody else is there; with others, tries are refused and made again.
#[test]
fn loans_are_locked_in_two_ways() {
    let run = |then: &str, others: &str, loans: &str| {
        let loans = format!("kernel.locks.loans={loans}");
        run("loan-locks", "xeon-mp", &[then, others, &loans, "rounds=8"])
    };
    for then in ["then=lend", "then=store", "then=orphans"] {
        let [one, published] = ["one-step", "published"].map(|loans| run(then, "others=0", loans));
        assert!(is(&published, "then_cycles_per_page") > is(&one, "then_cycles_per_page"), "{then}");
        assert_eq!(published.counters["loan_locks_refused"], 0, "{then}");
    }
    assert!(run("then=store", "others=1", "published").counters["loan_locks_refused"] > 0);
    // What an object let go is its borrower's own: no page is copied.
    let allocated = |then: &str| run(then, "others=0", "published").counters["frames_allocated"];
    assert_eq!(allocated("then=store"), allocated("then=orphans") + 8 * 16);
    let told = try_run_under("bsd-vm", "loan-locks", "pentium-pro", &[]).expect_err("nothing is lent there");
    assert!(told.contains("expected a kernel that lends pages"), "{told}");
}

/// UVM paper, abstract: pages go out in whole clusters, also while their process waits for others to come in. Each page
/// of memory objects goes alone.
#[test]
fn pages_go_out_in_whole_clusters() {
    for (kernel, expected) in [("uvm-paging", 15.5..=16.0), ("bsd-vm", 1.0..=1.0)] {
        for order in ["ascending", "scattered"] {
            let settings = ["passes=2", &format!("order={order}"), "size_bytes=34M"];
            let record = try_run_under(kernel, "page-out", "pentium-pro", &settings).unwrap();
            let pages = is(&record, "pages_per_request");
            assert!(expected.contains(&pages), "{kernel}, {order}: {pages}");
        }
    }
}

/// `lat_mem_rd` and `bw_mem` see what the machine's file says: the latency of each level, its stream of loads, which of
/// memory is that of its chips, and what a copy through it takes.
#[test]
fn memory_is_as_far_as_the_machines_file_says() {
    // A line of 32 bytes is read in 3, 10 and 27 cycles of 5 ns.
    for (size, expected_ns, expected_mb_s) in
        [("4K", 15.0, 2133.0), ("64K", 35.0, 640.0), ("4M", 190.0, 237.0)]
    {
        let record = run("memory", "pentium-pro", &[&format!("size_bytes={size}"), "total_bytes=256K"]);
        let [latency_ns, read, write, copy] =
            ["latency_ns", "read_mb_s", "write_mb_s", "copy_mb_s"].map(|metric| is(&record, metric));
        assert!((expected_ns..expected_ns * 1.02).contains(&latency_ns), "{size}: {latency_ns} ns");
        assert!((expected_mb_s * 0.98..=expected_mb_s * 1.01).contains(&read), "{size}: {read} MB/s");
        assert!(copy < write && write < read, "{size}: {copy}, {write}, {read} MB/s");
    }
    // Of no round size.
    run("memory", "pentium-pro", &["size_bytes=1000", "stride_bytes=6"]);
}
