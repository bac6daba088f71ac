//! Whole runs on the model: what they give, that they give it again, and that a broken law is reported.

use pageferry_lab::Registry;
use pageferry_lab::files::{KernelChoice, MachineChoice, Settings};
use pageferry_lab::record::{Record, RunResult};
use pageferry_lab::run::{Choices, RunSpec, Schedule, Silent, execute};
use pageferry_lab::{Blame, LabError};
use std::sync::Arc;

fn spec(experiment: &str, machine: &str, kernel: &str, settings: &[&str], choices: Choices) -> RunSpec {
    let experiment = Arc::new(Registry::standard().experiment(experiment).expect("embedded"));
    let (machine, kernel) =
        (MachineChoice::find(machine).expect("there"), KernelChoice::find(kernel).expect("there"));
    RunSpec::new(
        &Registry::standard(),
        &experiment,
        machine,
        kernel,
        &Settings::parse(settings).expect("settings"),
        choices,
    )
    .expect("a run")
}

fn quick() -> Choices {
    Choices { quick: true, ..Choices::default() }
}

fn run(experiment: &str, machine: &str, kernel: &str, settings: &[&str]) -> Result<RunResult, LabError> {
    pageferry_lab::run::run(&spec(experiment, machine, kernel, settings, quick()))
}

fn sound(experiment: &str, machine: &str, kernel: &str, settings: &[&str]) -> RunResult {
    let result = run(experiment, machine, kernel, settings).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(result.record.broken(), Vec::<String>::new(), "{}", result.record.title());
    assert!(result.record.payload_ok && result.record.stale_translations == 0);
    result
}

const SMALL: &[&str] = &["total_bytes=1048576"];

#[test]
fn the_original_kernel_invalidates_twice_a_page_and_sf_buf_never() {
    for (machine, cpus) in [("xeon-up", 1), ("xeon-mp", 2), ("xeon-mp-htt", 4), ("opteron-mp", 2)] {
        let original = sound("bw-pipe", machine, "original", SMALL).record;
        let pages = (1 << 20) / 4096;
        assert_eq!(original.counters["tlb_invalidations_local"], 2 * pages, "{machine}");
        let remote = if cpus > 1 { 2 * pages } else { 0 };
        assert_eq!(original.counters["tlb_invalidations_remote_issued"], remote, "{machine}");
        // One range a chunk, entered and removed, for each other CPU.
        assert_eq!(original.counters["shootdown_ipis"], 2 * (pages / 16) * (cpus - 1), "{machine}");
        for kernel in ["sf_buf", "sf_buf-shared"] {
            let sf_buf = sound("bw-pipe", machine, kernel, SMALL).record;
            assert_eq!(sf_buf.metric("tlb_invalidations"), Some(0.0), "{machine} under {kernel}");
            assert!(
                sf_buf.metric("bandwidth_mb_s") > original.metric("bandwidth_mb_s"),
                "{machine} under {kernel}"
            );
        }
    }
}

#[test]
fn misses_of_a_program_are_told_by_what_is_missed() {
    const USES: [&str; 9] =
        ["users", "text", "data", "stacks", "tables", "files", "programs", "buffers", "devices"];
    for (machine, reload) in [("ppc603", "slow-insert"), ("ppc604", "slow")] {
        let [pages, blocks] = ["pte", "bat"].map(|mapping| {
            let settings =
                ["trace=getversion-cpp", &format!("mapping={mapping}"), &format!("reload={reload}")];
            sound("replay", machine, "linux-ppc", &settings).record
        });
        let value = |record: &Record, name: &str| record.metric(name).unwrap_or_else(|| panic!("{name}"));
        for record in [&pages, &blocks] {
            let sum = |of: &str, end: &str| -> f64 {
                USES.iter().map(|what| value(record, &format!("{of}_{what}{end}"))).sum()
            };
            assert_eq!(sum("tlb_misses", ""), value(record, "tlb_misses_total"), "{machine}");
            assert!((sum("hash_misses", "_percent") - 100.0).abs() < 1e-6, "{machine}");
            assert!((sum("tlb_share", "_percent") - 100.0).abs() < 1e-6, "{machine}");
            assert_eq!(value(record, "tlb_misses_text"), value(record, "kernel_text_misses"), "{machine}");
            let kernels = value(record, "tlb_misses_total") - value(record, "tlb_misses_users");
            assert_eq!(kernels, value(record, "kernel_tlb_misses"), "{machine}");
        }
        for what in ["text", "data", "stacks", "files", "programs"] {
            let [by_page, by_block] = [&pages, &blocks].map(|r| value(r, &format!("tlb_misses_{what}")));
            assert!(by_page > 0.0 && by_block == 0.0, "{machine}: {what}: {by_page}, {by_block}");
        }
    }
}

#[test]
fn a_kernel_mapped_by_other_pages_does_the_same_work_with_other_misses() {
    for (experiment, file) in [("kernel-pages", None), ("kernel-pages-read", Some("file_bytes=16777216"))] {
        let run = |settings: &[&str]| {
            let all: Vec<&str> =
                settings.iter().copied().chain(file).chain(["second_superpages=true"]).collect();
            sound(experiment, "today", "sf_buf", &all).record
        };
        let board = run(&["mapping=board"]);
        let mega = run(&["mapping=2m"]);
        let same = Record { settings: board.settings.clone(), ..mega.clone() };
        assert_eq!(same, board, "{experiment}: pages of 2 MB are what the machine would have");
        let misses = |r: &Record| r.hardware["tlb_misses"];
        let mut last = misses(&mega);
        for percent in ["0", "50", "100"] {
            let split = run(&["mapping=fragmented", &format!("fragmented_percent={percent}")]);
            assert!(misses(&split) >= last, "{experiment}: {percent} % split");
            last = misses(&split);
        }
        let (pages, giga) = (run(&["mapping=pte"]), run(&["mapping=1g"]));
        assert!(misses(&pages) > misses(&mega) + 100, "{experiment}: {} misses", misses(&pages));
        assert!(misses(&giga) < misses(&pages), "{experiment}: {} misses", misses(&giga));
        for other in [&mega, &pages, &giga] {
            for counter in ["bytes_copied", "syscalls", "page_faults"] {
                assert_eq!(other.counters[counter], board.counters[counter], "{experiment}: {counter}");
            }
            // After a fork on two CPUs it hangs on who stores first whether the other has a copy to make.
            let but_copies = |of: &Record| of.counters["frames_allocated"] - of.counters["cow_copies"];
            assert_eq!(but_copies(other), but_copies(&board), "{experiment}: frames");
        }
    }
    let refused = run("kernel-pages", "opteron-mp", "sf_buf", &["mapping=1g"]).expect_err("it has none");
    let expected = "opteron-mp maps a kernel's memory by `board`, `pte`, `2m`, `fragmented` only";
    assert!(refused.to_string().contains(expected), "{refused}");
}

#[test]
fn the_cache_is_hit_after_warming_up_and_the_direct_map_is_no_cache() {
    let xeon = sound("bw-pipe", "xeon-up", "sf_buf", SMALL).record;
    assert_eq!(xeon.metric("ephemeral_hit_rate_percent"), Some(100.0));
    let cold = sound("bw-pipe", "xeon-up", "sf_buf", &["total_bytes=65536", "warmup_chunks=0"]).record;
    assert_eq!(cold.counters["ephemeral_misses"], 16);
    let opteron = sound("bw-pipe", "opteron-mp", "sf_buf", SMALL).record;
    assert_eq!(opteron.counters["kva_allocations"], 0);
}

/// What a file system's buffers invalidate is no mapping's of the disk's pages, and the same in both kernels.
#[test]
fn invalidations_are_told_by_user() {
    let small = ["files=40", "transactions=40", "disk_mb=16"];
    let counted = |kernel: &str| {
        let counters = sound("postmark", "xeon-mp", kernel, &small).record.counters;
        let of = |name: &str| counters[name];
        assert_eq!(of("mappings_by_pipe") + of("invalidations_by_pipe"), 0, "{kernel}");
        assert!(of("mappings_by_memory_disk") > 0 && of("mappings_by_buffers") > 0, "{kernel}");
        ["invalidations_by_memory_disk", "remote_invalidations_by_memory_disk", "invalidations_by_buffers"]
            .map(of)
    };
    let ([original, original_remote, original_buffers], [sf_buf, sf_buf_remote, sf_buf_buffers]) =
        (counted("original"), counted("sf_buf"));
    assert!(original > 0 && original == 2 * original_remote, "{original}, {original_remote}");
    assert_eq!((sf_buf, sf_buf_remote), (0, 0));
    assert!(original_buffers > 0);
    assert_eq!(original_buffers, sf_buf_buffers);
}

#[test]
fn a_cache_that_is_too_small_misses_always() {
    let small =
        sound("bw-pipe", "xeon-mp", "sf_buf", &["total_bytes=262144", "kernel.ephemeral.entries=8"]).record;
    assert_eq!((small.counters["ephemeral_hits"], small.counters["ephemeral_misses"]), (0, 64));
    assert!(small.counters["tlb_invalidations_local"] > 0);
}

#[test]
fn fetches_are_told_of_machines_that_describe_them() {
    for (machine, described) in
        [("mini-soft", true), ("mini-hash", true), ("mini-blocks", true), ("xeon-up", false)]
    {
        let settings = ["total_bytes=262144", "kernel.ephemeral.entries=1024"];
        let record = sound("bw-pipe", machine, "sf_buf", &settings).record;
        for name in ["fetch_tlb_lookups", "icache_lookups", "icache_misses"] {
            assert_eq!(record.hardware.contains_key(name), described, "{name} of {machine}");
        }
    }
}

#[test]
fn odd_sizes_arrive_too() {
    for (total, chunk, warmup) in
        [("1", "1", "0"), ("100001", "8191", "3"), ("70000", "65537", "1"), ("300000", "200000", "0")]
    {
        let settings = [
            format!("total_bytes={total}"),
            format!("chunk_bytes={chunk}"),
            format!("warmup_chunks={warmup}"),
        ];
        let settings: Vec<_> = settings.iter().map(String::as_str).collect();
        for kernel in ["original", "sf_buf"] {
            sound("bw-pipe", "xeon-htt", kernel, &settings);
        }
    }
}

#[test]
fn cycles_sum_for_every_cpu() {
    let record = sound("bw-pipe", "xeon-mp-htt", "original", SMALL).record;
    assert_eq!(record.cycles.per_cpu.len(), 4);
    for cpu in &record.cycles.per_cpu {
        assert_eq!(cpu.by_cause.values().sum::<u64>(), cpu.total, "cpu{}", cpu.cpu);
    }
    assert_eq!(record.cycles.by_cause.values().sum::<u64>(), record.cycles.total);
    let h = &record.hardware;
    assert_eq!(h["tlb_hits"] + h["tlb_misses"], h["tlb_lookups"]);
}

#[test]
fn invalidations_cost_more_when_the_entry_is_not_cached_and_remote_ones_cost_most() {
    let record = sound("invalidate", "xeon-htt", "original", &["times=100"]).record;
    let cost = |name: &str| record.metric(name).expect("measured");
    assert!(cost("local_cached_cycles") < cost("local_uncached_cycles"));
    assert!(cost("local_uncached_cycles") < cost("remote_cycles"));
    assert!((cost("local_cached_ns") - cost("local_cached_cycles") / 2.4).abs() < 1e-6);
    let up = sound("invalidate", "486", "original", &["times=100"]).record;
    assert_eq!(up.metric("remote_cycles"), None);
}

#[test]
fn a_hit_costs_the_same_in_any_cache() {
    let cost = |entries: &str| {
        let entries = format!("kernel.ephemeral.entries={entries}");
        sound("ephemeral-hit", "xeon-up", "sf_buf", &[&entries, "times=5000"]).record
    };
    let (small, large) = (cost("64"), cost("65536"));
    assert_eq!(small.metric("pair_cycles"), large.metric("pair_cycles"));
    assert_eq!(large.counters["ephemeral_hits"], 5000);
    assert_eq!(large.counters["ephemeral_misses"], 0);
}

#[test]
fn a_faster_clock_makes_the_cpu_faster_and_not_its_memory() {
    let at = |cpu: u32, memory: u32| {
        let clocks = [format!("machine.cpu.clock_mhz={cpu}"), format!("machine.memory.clock_mhz={memory}")];
        // More than its caches hold.
        let settings = ["total_bytes=4194304", "chunk_bytes=1048576", &clocks[0], &clocks[1]];
        sound("bw-pipe", "xeon-up", "sf_buf", &settings).record
    };
    let bandwidth = |record: &Record| record.metric("bandwidth_mb_s").expect("measured");
    let (slow, fast, both) = (at(1200, 1200), at(2400, 1200), at(2400, 2400));
    assert_eq!(slow.cycles.busy(), both.cycles.busy());
    assert!((bandwidth(&both) / bandwidth(&slow) - 2.0).abs() < 1e-9);
    // The same memory beside a CPU of twice the clock costs it up to twice the cycles, and what it computes as many as
    // before.
    assert_eq!(slow.cycles.by_cause["lock"], fast.cycles.by_cause["lock"]);
    assert!(slow.cycles.by_cause["copy"] < fast.cycles.by_cause["copy"]);
    assert!(bandwidth(&slow) < bandwidth(&fast) && bandwidth(&fast) < 1.9 * bandwidth(&slow));
}

/// Where sender and receiver have a CPU each, a buffer that is filled again faults page by page, and is copied as far
/// as it is still lent: a loan costs more than a copy then, and less where the buffer is left alone.
#[test]
fn a_loan_pays_a_sender_that_leaves_its_buffer_alone() {
    let bandwidth = |send: &str, refill: bool| {
        let refill = format!("refill={refill}");
        let record = sound("uvm-pipe", "today", "uvm", &[send, &refill, "total_bytes=1048576"]).record;
        let copied = record.counters["cow_copies"];
        (record.metric("bandwidth_mb_s").expect("measured"), copied)
    };
    let (left, again) = (bandwidth("send=loan", false), bandwidth("send=loan", true));
    assert!(left.1 == 0 && again.1 > 0, "what is still lent is copied for its owner: {left:?} {again:?}");
    assert!(left.0 > bandwidth("send=copy", false).0);
    assert!(again.0 < bandwidth("send=copy", true).0);
}

/// A transfer in the ping-pong costs what is copied, or what is mapped: by pass nothing is copied, and no page is
/// touched that the program does not touch.
#[test]
fn what_is_passed_is_not_copied() {
    let run = |settings: &[&str]| {
        let all = [settings, &["size_bytes=262144", "rounds=2"]].concat();
        sound("ping-pong", "pentium-pro", "uvm", &all).record
    };
    let socket = run(&["by=socket", "touch=false"]);
    let (untouched, touched) = (run(&["by=pass", "touch=false"]), run(&["by=pass", "touch=true"]));
    let transfers = 2 * 2;
    assert_eq!(socket.counters["bytes_copied"], transfers * 2 * 262_144, "twice a transfer");
    // Four messages of eight bytes, each copied in and out.
    assert_eq!(untouched.counters["bytes_copied"], transfers * 2 * 8);
    assert_eq!(untouched.counters["page_faults"], 0);
    assert_eq!(touched.counters["page_faults"], transfers * 64, "each page once, when it is touched");
    let bandwidth = |r: &pageferry_lab::record::Record| r.metric("bandwidth_mb_s").expect("measured");
    assert!(bandwidth(&untouched) > 10.0 * bandwidth(&socket));
    assert!(bandwidth(&touched) > bandwidth(&run(&["by=socket", "touch=true"])));
}

#[test]
fn a_pass_that_is_not_touched_costs_nearly_the_same_at_any_size() {
    let cost = |size: &str| {
        let settings = ["by=pass", "touch=false", size];
        sound("ping-pong", "pentium-pro", "uvm", &settings)
            .record
            .metric("elapsed_cycles_per_transfer")
            .expect("measured")
    };
    assert!(cost("size_bytes=4194304") < 2.0 * cost("size_bytes=4096"));
}

#[test]
fn a_pipeline_that_passes_and_lends_copies_messages_only() {
    for size in ["4096", "100000"] {
        let size = format!("size_bytes={size}");
        let pass = sound("pipeline", "pentium-pro", "uvm", &["by=pass", "send=loan", &size, "rounds=3"]);
        // Three messages a round; of a last page that is not whole, the rest is copied.
        let rest = if size.ends_with("4096") { 0 } else { 100_000 % 4096 };
        assert_eq!(pass.record.counters["bytes_copied"], 3 * (3 * 2 * 8 + rest));
        for (by, send) in [("by=socket", "send=copy"), ("by=socket", "send=loan"), ("by=pass", "send=copy")] {
            sound("pipeline", "pentium-pro", "uvm", &[by, send, &size]);
        }
    }
}

#[test]
fn buffers_of_any_size_go_to_and_fro() {
    for size in ["1", "4097", "70000"] {
        let size = format!("size_bytes={size}");
        for machine in ["pentium-pro", "xeon-mp", "opteron-mp"] {
            for (by, touch) in
                [("by=pass", "touch=true"), ("by=pass", "touch=false"), ("by=socket", "touch=true")]
            {
                sound("ping-pong", machine, "uvm", &[by, touch, &size]);
            }
            sound("pipeline", machine, "uvm", &[&size]);
        }
    }
}

#[test]
fn equal_runs_are_equal_at_one_and_at_two_threads() {
    let plan: Vec<RunSpec> = ["xeon-up", "xeon-mp-htt", "opteron-mp"]
        .into_iter()
        .flat_map(|machine| {
            ["original", "sf_buf"].map(|kernel| spec("bw-pipe", machine, kernel, SMALL, quick()))
        })
        .chain([spec("invalidate", "xeon-mp", "original", &["times=50"], quick())])
        .chain([spec("ping-pong", "pentium-pro", "uvm", &["by=pass"], quick())])
        .chain([spec("pipeline", "pentium-pro", "uvm", &[], quick())])
        .collect();
    let records = |jobs: usize| -> Vec<String> {
        let results = execute(&plan, jobs, &Silent).unwrap_or_else(|e| panic!("{e}"));
        results.into_iter().map(|r| serde_json::to_string(&r.record).expect("JSON")).collect()
    };
    let first = records(1);
    assert_eq!(first, records(1));
    assert_eq!(first, records(2));
}

#[test]
fn seeded_schedules_differ_and_repeat_and_break_no_law() {
    let seeded = |seed: u64| {
        let choices = Choices { quick: true, seed, schedule: Schedule::Seeded, ..Choices::default() };
        let spec = spec("bw-pipe", "xeon-mp", "sf_buf", &["total_bytes=131072"], choices);
        let record = pageferry_lab::run::run(&spec).unwrap_or_else(|e| panic!("{e}")).record;
        assert_eq!(record.broken(), Vec::<String>::new(), "seed {seed}");
        record
    };
    assert_eq!(seeded(1), seeded(1));
    assert_ne!(seeded(1).cycles, seeded(2).cycles);
}

#[test]
fn a_planted_fault_breaks_a_law() {
    let result = run("bw-pipe", "xeon-mp", "sf_buf", &["kernel.planted_fault=lost-wakeup"]).expect("it ran");
    let broken = result.record.broken();
    assert!(broken[0].contains("deadlock"), "{broken:?}");
}

#[test]
fn what_does_not_fit_is_the_inputs_fault() {
    for settings in [
        &["chunk_bytes=33554432"][..],
        &["machine.memory.size_mb=1"],
        &[
            "kernel.ephemeral.scheme=cache",
            "kernel.pipe.mapping=reader-page",
            "kernel.disk.mapping=ephemeral",
            "kernel.ephemeral.entries=4000000",
        ],
        &[
            "kernel.ephemeral.scheme=direct",
            "kernel.pipe.mapping=reader-page",
            "kernel.disk.mapping=ephemeral",
        ],
    ] {
        let error = run("bw-pipe", "486", "original", settings).expect_err("it cannot fit");
        assert_eq!(error.blame(), Blame::Input, "{error}");
        assert!(error.to_string().starts_with("486 under original: "), "{error}");
    }
}

#[test]
fn costs_grow_with_what_is_moved_and_not_with_what_is_there() {
    let cost = |of: &str, n: u32, metric: &str| {
        let (of, n) = (format!("of={of}"), format!("n={n}"));
        sound("cost-growth", "pentium-pro", "uvm", &[&of, &n]).record.metric(metric).expect("measured")
    };
    for of in ["loan", "transfer", "fork"] {
        let (few, many) = if of == "fork" { (1, 4) } else { (16, 256) };
        let (few, many) = (cost(of, few, "cycles_per_unit"), cost(of, many, "cycles_per_unit"));
        assert!(many < 1.5 * few, "{of}: {few} cycles a page of few, {many} of many");
    }
    for of in ["lookup", "space"] {
        let cycles = [10, 100, 1000].map(|n| cost(of, n, "cycles_per_call"));
        assert!(
            cycles.is_sorted() && cycles[0] < cycles[2],
            "{of}: each level of the tree costs: {cycles:?}"
        );
    }
    for (of, few, many) in [("lookup", 10, 1000), ("space", 10, 1000), ("amap", 10, 100), ("loan", 16, 256)] {
        let (few, many) = (cost(of, few, "cycles_per_call"), cost(of, many, "cycles_per_call"));
        assert_eq!(
            matches!(of, "lookup" | "space"),
            many < 3.0 * few,
            "{of}: {few} cycles a call for few, {many} for many"
        );
    }
}

/// By sockets a packet goes through the kernel's own servers: that costs more than where the kernel has the protocols,
/// and more than a request of servers whose data is where they want it. A thread that crosses is back when the packet
/// is sent: it waits for the wire.
#[test]
fn packets_by_sockets_go_through_the_kernels_own_servers() {
    let time = |kernel: &str, settings: &[&str]| {
        let record = sound("packet", "sh7751r", kernel, settings).record;
        record.metric("time_us").expect("measured")
    };
    for size in ["size_bytes=64", "size_bytes=1472"] {
        let methods = ["proposed", "previous", "random"].map(|method| format!("method={method}"));
        let servers = methods.each_ref().map(|method| time("ant", &["by=sockets", method, size]));
        let own = time("art-linux", &[size]);
        assert!(own < servers[0] && servers.is_sorted(), "{own} against {servers:?}");
        for (by_area, by_socket) in
            methods.each_ref().map(|method| time("ant", &[method, size])).iter().zip(servers)
        {
            assert!(*by_area < by_socket, "{by_area} and {by_socket}");
        }
        let crossing = time("ant", &["by=sockets", "method=migrating", size]);
        assert!(crossing > servers[0], "{crossing} with the wire, {servers:?}");
        let inside = time("ant", &["by=sockets", "kernel.ispc.network_servers=false", size]);
        assert!(inside < servers[0], "{inside} in the same kernel");
    }
}

/// Whatever uses sockets runs by servers.
#[test]
fn a_web_server_and_netperf_run_where_protocols_are_servers() {
    for method in ["random", "previous", "proposed", "migrating"] {
        let method = format!("kernel.ispc.method={method}");
        let web = sound("web", "sh7751r", "ant", &[&method, "requests=40", "warmup_requests=30"]).record;
        assert!(web.metric("requests_per_s") > Some(0.0), "{}", web.title());
        sound("netperf", "sh7751r", "ant", &[&method, "zero_copy=false", "total_bytes=262144"]);
    }
}

/// Every byte comes back to every client, by every method, whatever number of servers.
#[test]
fn many_clients_of_servers_get_their_own_bytes_back() {
    for (machine, kernel, methods) in [
        ("sh7751r", "ant", &["random", "previous", "proposed", "migrating"][..]),
        ("today", "ant-anywhere", &["random", "migrating"]),
    ] {
        for method in methods.iter().map(|method| format!("method={method}")) {
            for more in [["clients=3", "servers=2"], ["clients=16", "servers=8"], ["yields=1", "clients=16"]]
            {
                let all = [&method, more[0], more[1], "machine.cpu.packages=1"];
                let record = sound("ispc-clients", machine, kernel, &all).record;
                assert!(record.metric("requests_per_s") > Some(0.0), "{}", record.title());
                let requests: f64 = if more.contains(&"clients=3") { 24.0 } else { 128.0 };
                // The last of those before may have been counted, and some of those that are not measured begin.
                let counted = record.metric("ispc_requests").expect("counted");
                assert!((requests - 16.0..=requests + 16.0).contains(&counted), "{counted} of {requests}");
            }
        }
    }
}

/// Clients that have their pieces while others run use the reserved entries up: the others sleep for them, and go on.
#[test]
fn clients_that_wait_for_reserved_entries_get_them() {
    let all = ["method=migrating", "yields=1", "data_bytes=16384", "clients=8"];
    let record = sound("ispc-clients", "sh7751r", "ant", &all).record;
    assert!(record.counters["entry_sleeps"] > 0, "four clients have twenty of twenty-four entries");
}

#[test]
fn one_server_more_than_entries_show_the_area_to_is_refused() {
    for method in ["method=proposed", "method=migrating"] {
        let refused =
            run("ispc-clients", "sh7751r", "ant", &[method, "servers=9"]).expect_err("nine servers");
        let text = refused.to_string();
        assert!(text.contains("servers: 9, expected at most 8"), "{text}");
        assert!(text.contains("kernel.ispc.server_entries"), "{text}");
    }
    // Servers that have no entries of their own are not limited by them.
    sound("ispc-clients", "sh7751r", "ant", &["method=previous", "servers=9"]);
    let refused =
        run("ispc-clients", "sh7751r", "ant", &["data_bytes=200000"]).expect_err("too large a piece");
    assert!(refused.to_string().contains("kernel.ispc.reserved_entries"), "{refused}");
}

/// An application that gets no piece ends its server, which would wait for it for ever, and the run says what was too
/// much.
#[test]
fn a_piece_that_there_are_no_entries_for_is_refused() {
    for method in ["method=previous", "method=proposed", "method=migrating"] {
        let all = [method, "data_bytes=400000"];
        let refused = run("ispc", "sh7751r", "ant", &all).expect_err("too large a piece");
        assert!(refused.to_string().contains("allocate a data piece"), "{refused}");
    }
}

#[test]
fn fewer_clusters_than_the_card_has_use_for_are_refused() {
    for (experiment, kernel) in [("web", "original"), ("packet", "linux-2.6"), ("flip-receive", "linux-2.6")]
    {
        let machine = if experiment == "packet" { "sh7751r" } else { "xeon-up" };
        let refused = run(experiment, machine, kernel, &["kernel.socket.clusters=1"]).expect_err("too few");
        assert!(refused.to_string().contains("socket.clusters = 1: expected at least"), "{refused}");
    }
}

/// A piece that ends the warm-up may be all there is of what was to be measured.
#[test]
fn a_piece_that_is_longer_than_all_is_measured_all_the_same() {
    for (size, warmup, total) in [(65_536, 4096, 1), (8192, 1, 8191), (8192, 8192, 1), (4096, 0, 1)] {
        let set = |of: &str| {
            [format!("{of}={size}"), format!("warmup_bytes={warmup}"), format!("total_bytes={total}")]
        };
        let sent = set("size_bytes");
        run("card-send", "pentium-pro", "uvm", &sent.each_ref().map(String::as_str)).expect("it is sent");
        let [read, warmup, _] = set("read_bytes");
        for by in ["by=window", "by=copy", "by=area", "by=nothing"] {
            let set = [&read, &warmup, "total_bytes=4096", by];
            run("receive-ways", "today", "linux-6", &set.map(|set| set as &str)).expect("it is received");
        }
    }
}

/// Each descriptor of the card's takes an mbuf: with all of them, no connection could be made.
#[test]
fn a_ring_that_takes_all_mbufs_is_refused() {
    let ring = |slots: u64| {
        let set = [format!("machine.nic.receive_slots={slots}"), "total_bytes=65536".into()];
        run("receive-ways", "today", "linux-6", &set.each_ref().map(String::as_str))
    };
    let refused = ring(4096).expect_err("too many").to_string();
    let said = "nic.receive_slots = 4096: expected at most ";
    let at = refused.find(said).unwrap_or_else(|| panic!("{refused}")) + said.len();
    let digits: String = refused[at..].chars().take_while(char::is_ascii_digit).collect();
    ring(digits.parse().expect("a number")).expect("as many as it says");
}

/// An area is filled by the card, however small it is, and copied to where the card has no page of it; and what cannot
/// be is told.
#[test]
fn a_receive_area_is_filled_by_a_card_that_can() {
    // What had come before the area was there is copied, and is behind by the time that it is measured.
    let area = |settings: &[&str]| {
        let set = [&["by=area", "total_bytes=1048576", "read_bytes=65536"], settings].concat();
        run("receive-ways", "today", "linux-6", &set)
    };
    let placed = |result: RunResult| result.record.counters["bytes_placed"];
    assert_eq!(placed(area(&["machine.nic.receive_slots=256"]).expect("an area")), 1 << 20);
    let little = placed(area(&["area_bytes=8192"]).expect("two pages"));
    assert!((1..1 << 20).contains(&little), "{little} bytes by the card");
    let no_split =
        area(&["machine.nic.header_split=false"]).expect_err("headers are not split off").to_string();
    assert!(no_split.contains("expected a card that splits headers off"), "{no_split}");
    let looked =
        run("receive-ways", "today", "linux-6", &["by=nothing", "touch=true"]).expect_err("nothing to see");
    assert!(looked.to_string().contains("leaves nothing to look at"), "{looked}");
}

/// A path that is longer than the text of its process is a loop in it.
#[test]
fn a_process_executes_more_than_its_text() {
    for experiment in ["packet", "ispc"] {
        let settings = ["warmup=1", "stub_instructions=100000"];
        sound(experiment, "sh7751r", "ant", &settings);
    }
}
