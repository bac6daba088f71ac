//! The machine files of the repository, and files that are refused.

use std::collections::BTreeMap;

use pageferry_model::config::MachineConfig;
use pageferry_model::{ConfigError, Sourced};

const BASE: &str = include_str!("../../machines/xeon-up.toml");

fn parse(text: &str) -> Result<MachineConfig, ConfigError> {
    MachineConfig::parse("test", text, &|name| (name == "xeon-up").then(|| BASE.to_owned()))
}

/// `xeon-up` with one constant set to another value.
fn with(table: &str, key: &str, value: &str) -> Result<MachineConfig, ConfigError> {
    parse(&format!(
        "extends = \"xeon-up\"\n\
         [{table}]\n\
         {key} = {{ value = {value}, source = \"for the test\", kind = \"assumed\" }}\n"
    ))
}

fn refused(table: &str, key: &str, value: &str) -> ConfigError {
    let e = with(table, key, value).expect_err("no machine could be so");
    assert_eq!(e.key, format!("{table}.{key}"), "{e}");
    assert_eq!(e.line, 3, "{e}");
    e
}

/// Every machine file of the repository, by name.
fn files() -> BTreeMap<String, String> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/machines");
    std::fs::read_dir(folder)
        .expect("machines/ is there")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == "toml"))
        .map(|path| {
            let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
            (name, std::fs::read_to_string(&path).expect("readable"))
        })
        .collect()
}

#[test]
fn every_machine_file_is_a_machine() {
    let files = files();
    for name in [
        "xeon-up",
        "xeon-htt",
        "xeon-mp",
        "xeon-mp-htt",
        "opteron-mp",
        "486",
        "pentium",
        "pentium-pro",
        "pentium-iii",
        "today",
        "today-8",
        "today-64",
        "today-arm",
        "today-unmitigated",
        "mini-soft",
        "mini-hash",
        "mini-blocks",
        "ppc603",
        "ppc604",
        "ppc604-200",
        "ppc604-smp",
    ] {
        assert!(files.contains_key(name), "no file for {name}");
    }
    for (name, text) in &files {
        let machine = MachineConfig::parse(name, text, &|base| files.get(base).cloned());
        let machine = machine.unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(machine.name, *name);
        assert!(machine.constants().len() > 30);
        let without = machine.constants().into_iter().find(|c| c.source.is_empty());
        assert_eq!(without, None, "a constant of {name} has no source");
    }
}

#[test]
fn tags_are_as_wide_as_the_root_register_has_room_for() {
    let mut arm = MachineConfig::named("today-arm").expect("it is built in");
    assert_eq!((arm.validate(), arm.board().asids), (Ok(()), 1 << 16));
    arm.mmu.asid_bits = Some(Sourced::assumed(17, "for the test"));
    assert_eq!(arm.validate().expect_err("too many").key, "mmu.asid_bits");
    let mut amd = MachineConfig::named("today").expect("it is built in");
    amd.mmu.asid_bits = arm.mmu.asid_bits.map(|_| Sourced::assumed(16, "for the test"));
    assert_eq!(amd.validate().expect_err("too many").key, "mmu.asid_bits");
}

#[test]
fn current_machines_differ_from_today_where_they_should() {
    let named = |name| MachineConfig::named(name).expect("it is built in");
    let (today, off) = (named("today"), named("today-unmitigated"));
    assert_eq!((&off.cache, &off.tlb, &off.memory), (&today.cache, &today.tlb, &today.memory));
    let entries = |m: &MachineConfig| {
        [&m.cpu.syscall_enter_cycles, &m.cpu.trap_enter_cycles].map(|cycles| cycles.value)
    };
    assert!(entries(&off) < entries(&today));
    let (eight, all) = (named("today-8"), named("today-64"));
    assert_eq!((eight.cpus(), all.cpus()), (8, 64));
    assert_eq!((&eight.cache, &eight.complex), (&today.cache, &all.complex));
    assert!(named("today-arm").board().broadcasts_flushes);
}

#[test]
fn the_xeons_differ_in_nothing_but_their_cpus() {
    let files = files();
    let read = |name: &str| {
        MachineConfig::parse(name, &files[name], &|base| files.get(base).cloned()).expect("good")
    };
    let up = read("xeon-up");
    let shapes = [("xeon-up", 1, 1), ("xeon-htt", 1, 2), ("xeon-mp", 2, 1), ("xeon-mp-htt", 2, 2)];
    for (name, packages, threads) in shapes {
        let machine = read(name);
        assert_eq!((machine.cpu.packages.value, machine.cpu.threads_per_package.value), (packages, threads));
        let differing: Vec<_> =
            machine.constants().into_iter().filter(|c| !up.constants().contains(c)).map(|c| c.key).collect();
        let only_cpus = |key: &String| key == "cpu.packages" || key == "cpu.threads_per_package";
        assert!(differing.iter().all(only_cpus), "{name}: {differing:?}");
    }
}

#[test]
fn cpus_and_packages() {
    let files = files();
    let machine =
        MachineConfig::parse("m", &files["xeon-mp-htt"], &|base| files.get(base).cloned()).expect("good");
    assert_eq!(machine.cpus(), 4);
    assert_eq!((0..4).map(|cpu| machine.package_of(cpu)).collect::<Vec<_>>(), [0, 0, 1, 1]);
    assert_eq!(machine.memory_bytes(), 2 << 30);
}

#[test]
fn impossible_machines_are_refused() {
    refused("cpu", "packages", "0");
    refused("cpu", "threads_per_package", "0");
    assert!(refused("cpu", "packages", "65").problem.contains("expected 1 to 64"));
    refused("cpu", "threads_per_package", "65");
    refused("cpu", "clock_mhz", "0");
    refused("cpu", "smt_slowdown_milli", "999");
    refused("cpu", "syscall_enter_cycles", "5000000000");
    refused("tlb.data", "entries", "0");
    refused("tlb.data", "ways", "3");
    refused("tlb.data", "ways", "128");
    refused("memory", "size_mb", "0");
    assert!(refused("memory", "size_mb", "8192").problem.contains("I386 addresses no more"));
    refused("memory", "latency_cycles", "0");
}

#[test]
fn impossible_caches_are_refused() {
    let caches = |find: &str, put: &str| {
        let text = BASE.replacen(find, put, 1);
        assert_ne!(text, BASE, "`{find}` is in the file");
        parse(&text).expect_err("no cache could be so")
    };
    let e = caches("size_bytes = { value = 8192", "size_bytes = { value = 8000");
    assert_eq!(e.key, "cache[0].size_bytes");
    assert!(e.line > 0);
    assert_eq!(caches("ways = { value = 4", "ways = { value = 0").key, "cache[0].ways");
    assert_eq!(caches("line_bytes = { value = 64", "line_bytes = { value = 48").key, "cache[0].line_bytes");
    assert_eq!(caches("line_bytes = { value = 64", "line_bytes = { value = 32").key, "cache[1].line_bytes");
    assert_eq!(caches("exclusive = { value = false", "exclusive = { value = true").key, "cache[0].exclusive");
    assert_eq!(caches("name = \"L1\"", "name = \"L2\"").key, "cache[1].name");
}

#[test]
fn impossible_instruction_tlbs_and_caches_are_refused() {
    let number = |value: u64| format!("{{ value = {value}, source = \"for the test\", kind = \"assumed\" }}");
    let refused = |table: &str, keys: &[(&str, u64)]| {
        let lines: String = keys.iter().map(|(key, value)| format!("{key} = {}\n", number(*value))).collect();
        parse(&format!("extends = \"xeon-up\"\n[{table}]\n{lines}")).expect_err("no machine could be so")
    };
    let tlb = |keys: &[(&str, u64)]| refused("tlb.instruction", keys);
    let e = tlb(&[("entries", 0), ("ways", 0)]);
    assert_eq!((e.line, e.key.as_str()), (3, "tlb.instruction.entries"), "{e}");
    assert!(e.problem.contains("expected 1 to 65536"), "{e}");
    let e = tlb(&[("entries", 64), ("ways", 3)]);
    assert_eq!((e.line, e.key.as_str()), (4, "tlb.instruction.ways"), "{e}");
    let e = tlb(&[("entries", 64), ("ways", 0), ("data_hit_cycles", 3)]);
    assert!(e.key == "tlb.instruction.data_hit_cycles" && e.problem.contains("expected none"), "{e}");
    assert!(tlb(&[("entries", 64)]).problem.contains("ways"), "a key is missing");
    let cache =
        |size, ways, line| refused("icache", &[("size_bytes", size), ("ways", ways), ("line_bytes", line)]);
    let e = cache(16000, 4, 64);
    assert!(e.key == "icache.size_bytes" && e.problem.contains("(256) times a power of two"), "{e}");
    assert_eq!(cache(16384, 0, 64).key, "icache.ways");
    assert_eq!(cache(16384, 17, 64).key, "icache.ways");
    let e = cache(16384, 4, 32);
    assert!(e.key == "icache.line_bytes" && e.problem.contains("expected 64, as in the first level"), "{e}");
    assert_eq!(cache(16384, 4, 48).key, "icache.line_bytes");
    let e = refused("icache", &[("size_byte", 16384)]);
    assert_eq!(e.suggestion.as_deref(), Some("size_bytes"), "{e}");
}

#[test]
fn impossible_network_cards_are_refused() {
    for (key, value, expected) in [
        ("link_mbit_s", "0", "0, expected 1 to 1000000"),
        ("mtu_bytes", "67", "67, expected 68 to 9216"),
        ("transmit_slots", "1", "1, expected 2 to 4096"),
        ("receive_slots", "4097", "4097, expected 2 to 4096"),
        ("transmit_fragments", "0", "0, expected 1 to 256"),
        ("transmit_fragments", "200000", "200000, expected 1 to 256"),
        ("interrupt_gap_ns", "-1", "-1, expected 0 to 1000000000"),
        ("dma_latency_ns", "1000001", "expected 0 to 1000000"),
        ("dma_mb_s", "0", "0, expected 1 to 1000000"),
        ("register_read_ns", "1000001", "expected 0 to 1000000"),
        ("register_write_ns", "1000001", "expected 0 to 1000000"),
    ] {
        let e = refused("nic", key, value);
        assert!(e.problem.contains(expected), "{e}");
    }
    // What a card joins fills pages, behind headers that it splits off and sums that it has looked at; and a ring holds
    // a frame.
    let parsed = |splits: bool, words: &[(&str, u64)]| {
        let line = |(key, value): &(&str, u64)| {
            format!("{key} = {{ value = {value}, source = \"a test's\", kind = \"assumed\" }}\n")
        };
        let lines: String = words.iter().map(line).collect();
        parse(&format!(
            "extends = \"xeon-up\"\n[nic]\nheader_split = {splits}\nreceive_checksum = true\n{lines}"
        ))
    };
    for (splits, words, expected) in [
        (true, &[("coalesce_bytes", 61_441)][..], "61441, expected 0 to 61440"),
        (true, &[("coalesce_bytes", 5000)], "5000, expected whole pages of 4096 bytes, or 0"),
        (false, &[("coalesce_bytes", 4096)], "4096, expected a card with header_split and"),
        (true, &[("receive_slots", 15), ("coalesce_bytes", 61_440)], "15, expected the 16 descriptors"),
        (true, &[("flow_slots", 2), ("mtu_bytes", 9000)], "2, expected the 4 descriptors"),
        (true, &[("receive_slots", 3), ("mtu_bytes", 9000)], "3, expected the 4 descriptors"),
        (true, &[("flow_slots", 4097)], "4097, expected 0 to 4096"),
    ] {
        let e = parsed(splits, words).expect_err(expected);
        assert!(e.key == format!("nic.{}", words[0].0) && e.problem.contains(expected), "{e}");
    }
    let fits = [("flow_slots", 0), ("coalesce_bytes", 61_440), ("receive_slots", 16)];
    parsed(true, &fits).expect("one frame at a time");
    let few = parse("extends = \"xeon-up\"\n[nic]\ntransmit_slots = 8\n").expect_err("16 fragments");
    assert_eq!(few.key, "nic.transmit_fragments");
    assert!(few.problem.contains("expected no more than the 8 descriptors"), "{few}");
    let near = parse("extends = \"xeon-up\"\n[nic]\nlink_mbits_s = 8\n").expect_err("no such key");
    assert_eq!((near.line, near.suggestion.as_deref()), (3, Some("link_mbit_s")), "{near}");
    let word = parse("extends = \"xeon-up\"\n[nic]\nheader_split = 1\n").expect_err("no truth value");
    assert!(
        word.line == 3 && word.to_string().contains("expected true or false, as in `header_split = true`"),
        "{word}"
    );
    let part = MachineConfig::extending("mine", "extends = \"486\"\n[nic]\nlink_mbit_s = 8\n");
    let part = part.expect_err("a card is described in full");
    assert!(part.to_string().contains("`nic`: missing key `mtu_bytes`"), "{part}");
}

#[test]
fn sources_must_be_in_the_bibliography() {
    let line = "clock_mhz = { value = 2400, source = \"sf-bufs, 3\", kind = \"paper\" }";
    let e = parse(&format!("extends = \"xeon-up\"\n[cpu]\n{line}\n")).expect_err("no such source");
    assert_eq!((e.key.as_str(), e.suggestion.as_deref()), ("cpu.clock_mhz", Some("sf-buf")));
}

#[test]
fn a_base_must_exist_and_not_be_the_file_itself() {
    let e = parse("extends = \"xeon-upp\"\n").expect_err("no such base");
    assert_eq!((e.line, e.key.as_str()), (1, "extends"));
    let e = MachineConfig::parse("a", "extends = \"b\"", &|_| Some("extends = \"a\"".to_owned()))
        .expect_err("circle");
    assert!(e.problem.contains("extends itself"), "{e}");
    assert_eq!(e.file, "b");
    assert!(parse("extends = 3\n").is_err());
}

#[test]
fn a_fault_of_a_base_is_told_with_its_own_name() {
    let e = MachineConfig::parse("child", "extends = \"base\"", &|_| Some("[cpu]\nclock = 1\n".to_owned()))
        .expect_err("the base is faulty");
    assert_eq!(e.file, "base");
}

#[test]
fn latency_in_nanoseconds_is_converted() {
    let mut machine = parse("extends = \"xeon-up\"\n").expect("good");
    machine.memory.latency_cycles = None;
    machine.memory.latency_ns = Some(Sourced::assumed(100, "for the test"));
    assert_eq!(machine.memory_latency_cycles(), 240);
    machine.memory.latency_ns = None;
    assert_eq!(machine.validate().expect_err("no latency").key, "memory");
}

#[test]
fn what_is_told_in_another_way_takes_the_place_of_what_was_told_before() {
    let parse = |text: &str| MachineConfig::extending("test", text);
    let faster = parse("extends = \"xeon-up\"\n[memory]\nlatency_ns = 100\n").expect("good");
    assert_eq!((faster.memory_latency_cycles(), faster.memory.latency_cycles), (240, None));
    let dram = "[memory.dram]\nclock_cycles = 3\nbeat_bytes = 8\nbeat_clocks = 2\ngap_clocks = 1\n\
                row_close_clocks = 3\nrow_open_clocks = 2\nmax_load_misses = 4\nmax_store_misses = 1\n\
                max_write_backs = 4\n";
    let by_parts = parse(&format!("extends = \"xeon-up\"\n{dram}")).expect("good");
    assert_eq!((by_parts.write_back_cycles(), by_parts.memory.writeback_cycles), (51, None));
    let one = parse("extends = \"pentium-pro\"\n[memory.dram]\nmax_load_misses = 1\n").expect("good");
    assert_eq!(one.memory.dram.expect("it has one").max_load_misses.value, 1);
    let rates = "stream_load_cycles = 28\nstream_store_cycles = 28\nwriteback_cycles = 20\n";
    let told = parse(&format!("extends = \"pentium-pro\"\n[memory]\n{rates}")).expect("good");
    assert_eq!((told.write_back_cycles(), told.memory.dram), (20, None));
    let half =
        parse("extends = \"pentium-pro\"\n[memory]\nstream_load_cycles = 28\n").expect_err("half of it");
    assert!(half.to_string().contains("memory.stream_store_cycles"), "{half}");
}

#[test]
fn a_faster_cpu_has_no_faster_memory() {
    let built_in = parse("extends = \"xeon-up\"\n").expect("good");
    let faster = parse("extends = \"xeon-up\"\n[cpu]\nclock_mhz = 4800\n").expect("good");
    let outside = |m: &MachineConfig| {
        let (memory, ipi) = (&m.memory, &m.ipi);
        let load = memory.stream_load_cycles.as_ref().expect("a Xeon's file has it");
        let costs = [load, &memory.transfer_cycles, &ipi.deliver_other_package_cycles];
        let mut costs: Vec<u64> = costs.map(|cycles| m.outside_cycles(cycles)).to_vec();
        costs.push(m.memory_latency_cycles());
        costs
    };
    assert_eq!(
        outside(&built_in),
        [85, 520, 864, 502],
        "at the clock that it is counted by, what is written"
    );
    assert_eq!(outside(&faster), [170, 1040, 1728, 1004], "as long in time, twice as many cycles");
    let slow = parse("extends = \"xeon-up\"\n[cpu]\nclock_mhz = 1\n").expect("good");
    assert_eq!(slow.memory_latency_cycles(), 1, "no access is free");
    let e = with("memory", "clock_mhz", "0").expect_err("no clock");
    assert_eq!(e.key, "memory.clock_mhz", "{e}");
    let e = parse("extends = \"xeon-up\"\n[cpu]\nclock_mhz = 100000\n[memory]\nclock_mhz = 1\n");
    let e = e.expect_err("too slow");
    assert!(e.key == "memory.clock_mhz" && e.to_string().contains("and may take 1000000"), "{e}");
}

#[test]
fn a_file_without_a_clock_of_memory_means_that_of_its_cpu() {
    let text = files()["xeon-up"].clone();
    let memory = text.find("[memory]").expect("it has some");
    let clock = entry(&text[memory..], "clock_mhz");
    let own = [&text[..memory], &text[memory..].replace(clock, "")].concat();
    let mut own = MachineConfig::parse("own", &own, &|_| None).expect("good");
    assert_eq!(own.memory_latency_cycles(), 502);
    own.cpu.clock_mhz = Sourced::assumed(4800, "set afterwards");
    assert_eq!(own.memory_latency_cycles(), 1004);
}

#[test]
fn a_plain_number_in_a_file_of_your_own_has_no_source() {
    let mine = parse("extends = \"xeon-up\"\n[cpu]\nclock_mhz = 3000\n").expect("good");
    let clock = mine.constants().into_iter().find(|c| c.key == "cpu.clock_mhz").expect("it is there");
    assert_eq!((clock.value.as_str(), clock.source.as_str(), clock.kind.name()), ("3000", "", "yours"));
    let e = parse("extends = \"xeon-up\"\n[cpu]\nclock_mhz = 0\n").expect_err("out of range");
    assert!(e.line == 3 && e.to_string().contains("0, expected 1 to 100000"), "{e}");
}

/// What the first key of this name is set to in a text, with the key: a source may go over several lines.
fn entry<'a>(text: &'a str, key: &str) -> &'a str {
    let start = text.find(&format!("\n{key} = ")).expect("the key") + 1;
    let ends = text[start..].match_indices('\n').map(|(at, _)| start + at);
    let whole = |end: &usize| text[start..*end].matches("\"\"\"").count().is_multiple_of(2);
    &text[start..ends.into_iter().find(whole).expect("the end of it")]
}

/// A machine file with one entry replaced: the error that it gets.
fn replaced(name: &str, line: &str, by: &str) -> ConfigError {
    let text = &files()[name];
    assert_eq!(text.matches(line).count(), 1, "{name}: `{line}`");
    MachineConfig::parse(name, &text.replace(line, by), &|_| None).expect_err("no machine could be so")
}

#[test]
fn a_machine_fills_its_tlb_in_one_way() {
    let e = replaced("xeon-up", "walker = \"radix\"\n", "");
    let mmu = files()["xeon-up"].lines().position(|l| l == "[mmu]").expect("it has one") + 1;
    assert_eq!((e.key.as_str(), e.line), ("mmu", mmu), "{e}");
    assert!(e.to_string().contains("expected `walker` or a table [mmu.soft]"), "{e}");
    let e = replaced("mini-soft", "[mmu]\n", "[mmu]\nwalker = \"hash\"\n");
    assert_eq!(e.key, "mmu.soft", "{e}");
    assert!(e.to_string().contains("only one of"), "{e}");
    let e = replaced("xeon-up", "walker = \"radix\"", "walker = \"hash\"");
    assert!(e.key == "mmu.walker" && e.to_string().contains("I386"), "{e}");
    let e = replaced("xeon-up", "walker = \"radix\"", "walker = \"raddix\"");
    assert!(e.to_string().contains("radix"), "{e}");
    let e = replaced("mini-hash", "walker = \"hash\"\n", "walker = \"hash\"\nwalkers = 2\n");
    assert!(e.to_string().contains("walker"), "{e}");
}

#[test]
fn what_translates_is_as_hardware_is() {
    let of = |value: u64| format!("{{ value = {value}, source = \"for the test\", kind = \"assumed\" }}");
    let with = |file: &str, key: &str, value: u64| {
        replaced(file, entry(&files()[file], key), &format!("{key} = {}", of(value)))
    };
    let line_of = |file: &str, key: &str| {
        files()[file].lines().position(|l| l.starts_with(&format!("{key} = "))).expect("the key") + 1
    };
    for (file, key, value, table, expected) in [
        ("mini-soft", "asid_bits", 0, "mmu", "0, expected 1 to 20"),
        ("mini-soft", "reserved_entries", 64, "mmu.soft", "64, expected fewer than the 64 entries"),
        ("mini-soft", "len_bytes", 3 << 28, "mmu.area[0]", "expected a power of two"),
        ("mini-soft", "va", 0x8000_1000, "mmu.area[0]", "expected a multiple of its size"),
        ("mini-blocks", "reserved_entries", 1, "mmu.soft", "expected 0: the TLB is not fully associative"),
        ("mini-blocks", "min_bytes", 100_000, "mmu.blocks", "expected a power of two"),
        ("mini-blocks", "max_bytes", 65_536, "mmu.blocks", "expected 131072 to"),
        ("mini-blocks", "registers", 0, "mmu.blocks", "0, expected 1 to 16"),
        ("today", "asid_bits", 13, "mmu", "13, expected 1 to 12"),
    ] {
        let e = with(file, key, value);
        assert_eq!(e.key, format!("{table}.{key}"), "{e}");
        assert_eq!(e.line, line_of(file, key), "{e}");
        assert!(e.to_string().contains(expected), "{e}");
    }
    let second = format!(
        "[[mmu.area]]\nva = {}\npa = {}\nlen_bytes = {}\n\n[sources]",
        of(0x9000_0000),
        of(0),
        of(1 << 28)
    );
    let e = replaced("mini-soft", "[sources]", &second);
    assert!(e.key == "mmu.area[1].va" && e.to_string().contains("overlaps mmu.area[0]"), "{e}");
    let walker = "walker = \"radix\"\n";
    for (file, key, with, problem) in [
        (
            "xeon-up",
            "mmu.asid_bits",
            format!("asid_bits = {}\n", of(12)),
            "12, expected none: the TLB of an I386",
        ),
        (
            "opteron-mp",
            "mmu.invalidate_other_cycles",
            format!("invalidate_other_cycles = {}\n", of(300)),
            "300, expected none",
        ),
        ("opteron-mp", "mmu", format!("asid_bits = {}\n", of(12)), "expected invalidate_other_cycles"),
    ] {
        let e = replaced(file, walker, &format!("{walker}{with}"));
        assert!(e.key == key && e.to_string().contains(problem), "{e}");
    }
    let e = replaced("mini-hash", "[mmu.refill]\n", "[mmu.refills]\n");
    assert!(e.to_string().contains("refill"), "{e}");
}

#[test]
fn areas_cover_all_of_memory_and_lie_where_no_pages_do() {
    let of = |value: u64| format!("{{ value = {value:#x}, source = \"x\", kind = \"assumed\" }}");
    let area =
        |va, pa, len| format!("[[mmu.area]]\nva = {}\npa = {}\nlen_bytes = {}\n", of(va), of(pa), of(len));
    let text = &files()["mini-soft"];
    let (start, end) = (text.find("[[mmu.area]]").expect("one"), text.find("[sources]").expect("sources"));
    let with = |areas: &str| {
        let text = format!("{}{areas}{}", &text[..start], &text[end..]);
        MachineConfig::parse("mini-soft", &text, &|_| None).expect_err("no machine could be so").to_string()
    };
    let whole = area(0x8000_0000, 0, 1 << 29);
    let hole = area(0x8000_0000, 0, 1 << 22) + &area(0x83c0_0000, 0x3c0_0000, 1 << 22);
    assert!(with(&hole).contains("nothing maps 0x80400000"), "{}", with(&hole));
    for va in [0x40_0000, 0xc000_0000] {
        let said = with(&(whole.clone() + &area(va, 0, 1 << 22)));
        assert!(said.contains("`mmu.area[1].va`") && said.contains("addresses of no pages"), "{said}");
    }
    let i386 = format!("{}{}", files()["xeon-up"], area(0xc000_0000, 0, 1 << 22));
    let said = MachineConfig::parse("xeon-up", &i386, &|_| None).expect_err("no areas there").to_string();
    assert!(said.contains("expected none"), "{said}");
}

#[test]
fn blocks_end_where_pages_begin_and_a_copy_finds_room_for_both_pages() {
    let edited = |name: &str, edit: fn(&mut MachineConfig)| {
        let mut config = MachineConfig::parse(name, &files()[name], &|_| None).expect("valid");
        edit(&mut config);
        config.validate().expect_err("no machine could be so").to_string()
    };
    let large = edited("mini-blocks", |c| {
        let blocks = c.mmu.blocks.as_mut().expect("blocks");
        (blocks.min_bytes.value, blocks.max_bytes.value) = (1 << 30, 1 << 30);
    });
    assert!(large.contains("pages begin there"), "{large}");
    let direct = edited("mini-blocks", |c| c.tlb.data.ways.value = 1);
    assert!(direct.contains("needs both at once"), "{direct}");
    let reserved = edited("mini-soft", |c| c.mmu.soft.as_mut().expect("soft").reserved_entries.value = 63);
    assert!(reserved.contains("needs both at once"), "{reserved}");
}
