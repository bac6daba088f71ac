//! A machine file of this host: what the lab's model of a machine takes, as far as a program can measure it.
//!
//! # What it holds
//! The clock, the caches as the kernel describes them, what loads and stores take at each level, what memory takes, and
//! what a line takes that the other CPU has. Everything else is `today`'s (the file extends it): traps, invalidations
//! and interrupts cannot be told from the kernel's own work around them. Each value says between which bounds it lies
//! with 95 %.

use crate::error::{BenchError, Result};
use crate::predict::parts;
use crate::raw::{self, Memory};
use crate::stats::nanos;
use crate::surroundings::{Cache, Surroundings, caches};
use crate::work;
use core::fmt::Write as _;
use core::hint::black_box;
use pageferry::choose::{Nanos, Primitive};
use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand_chacha::ChaCha8Rng;
use std::time::{Duration, Instant};

const LINE: usize = 64;
const TIMES: usize = 9;
const TURN: Duration = Duration::from_millis(3);
/// What stands behind the last cache, at most.
const MAX_MEMORY: usize = 256 << 20;
/// Bytes by which is measured what the other CPU has: more than one core's caches hold.
const SHARED: usize = 4 << 20;

/// Nanoseconds of one of `each` operations that a call makes. Other programs are kept off the CPU meanwhile, where this
/// user may do that.
fn timed(each: usize, mut call: impl FnMut()) -> Result<Nanos> {
    let realtime = raw::realtime(true).is_ok();
    let began = Instant::now();
    call();
    let rounds = (TURN.as_nanos() / began.elapsed().as_nanos().max(50)).clamp(1, 100_000) as u32;
    let one = |_| {
        let began = Instant::now();
        (0..rounds).for_each(|_| call());
        began.elapsed().as_nanos() as f64 / f64::from(rounds) / each as f64
    };
    let values: Vec<f64> = (0..TIMES).map(one).collect();
    if realtime {
        raw::realtime(false)?;
    }
    nanos(&values).ok_or_else(|| BenchError::Usage("nothing was measured".to_owned()))
}

/// Loads that each wait for the one before, over `bytes`, a line each, in no order.
fn latency(memory: &mut Memory, bytes: usize) -> Result<Nanos> {
    let lines = bytes / LINE;
    let mut order: Vec<usize> = (1..lines).collect();
    order.shuffle(&mut ChaCha8Rng::seed_from_u64(1));
    let words = memory.bytes_mut(0, bytes).as_chunks_mut::<8>().0;
    let mut at = 0;
    for next in order.into_iter().chain([0]) {
        words[at] = (next as u64 * 8).to_ne_bytes();
        at = next * 8;
    }
    let loads = lines.min(200_000);
    let words = memory.bytes(0, bytes).as_chunks::<8>().0;
    let mut at = 0;
    timed(loads, || {
        for _ in 0..loads {
            at = u64::from_ne_bytes(words[at]) as usize;
        }
        black_box(at);
    })
}

/// Nanoseconds of a cycle: a multiplication takes three, on every x86 since 2008.
fn cycle() -> Result<Nanos> {
    const CHAIN: usize = 3000;
    let mut value = black_box(3u64);
    let three = timed(CHAIN, || {
        for _ in 0..CHAIN {
            value = value.wrapping_mul(black_box(5)) | 1;
        }
        black_box(value);
    })?;
    // With the one of the `or`.
    Ok(scaled(three, 0.25))
}

fn scaled(time: Nanos, by: f64) -> Nanos {
    Nanos { median: time.median * by, low: time.low * by, high: time.high * by }
}

/// A value with its bounds, as a line of the file.
struct Writer<'a> {
    text: String,
    day: &'a str,
    /// Nanoseconds of a cycle.
    cycle: f64,
}

impl Writer<'_> {
    fn line(&mut self, key: &str, value: impl core::fmt::Display, source: &str, kind: &str) {
        let _ =
            writeln!(self.text, "{key} = {{ value = {value}, source = \"{source}\", kind = \"{kind}\" }}");
    }

    fn measured(&mut self, key: &str, value: f64, (low, high): (f64, f64), unit: &str, what: &str) {
        let day = self.day;
        let source = format!("host-calibrate, {day}: {what}; {low:.2} to {high:.2} {unit}");
        self.line(key, value.round().max(1.0), &source, "measured");
    }

    /// Size, ways and line of a cache.
    fn geometry(&mut self, cache: &Cache) {
        let said = "host-calibrate: /sys/devices/system/cpu/cpu0/cache";
        let nearest = nearest(cache);
        let source = if nearest == *cache {
            said.to_owned()
        } else {
            let Cache { bytes, ways, .. } = cache;
            format!("{said} has {bytes} bytes of {ways} ways: the nearest that a machine file can say")
        };
        for (key, value) in
            [("size_bytes", nearest.bytes), ("ways", nearest.ways), ("line_bytes", nearest.line)]
        {
            self.line(key, value, &source, "measured");
        }
    }

    /// A time in cycles, of which one is the least.
    fn cycles(&mut self, key: &str, time: Nanos, what: &str) {
        let cycles = scaled(time, 1.0 / self.cycle);
        self.measured(key, cycles.median, (cycles.low, cycles.high), "cycles", what);
    }
}

/// What comes nearest to a cache of what a machine file can say: at most 16 ways, and a power of two of sets in each. A
/// last level in slices has other numbers of sets (13 times a power of two), and some have 20 ways.
fn nearest(cache: &Cache) -> Cache {
    const MAX_WAYS: usize = 16;
    const MAX_BYTES: usize = 1 << 30;
    let lines = cache.bytes.min(MAX_BYTES) / cache.line;
    let of = |ways: usize| {
        let sets = (lines / ways).checked_ilog2().map_or(1, |log| 1 << log);
        Cache { bytes: sets * ways * cache.line, ways, ..*cache }
    };
    let exact = (1..=MAX_WAYS).contains(&cache.ways).then(|| of(cache.ways));
    // Of the largest, that with the most ways.
    exact
        .filter(|exact| exact == cache)
        .or_else(|| (1..=MAX_WAYS.min(lines)).map(of).max_by_key(|cache| (cache.bytes, cache.ways)))
        .unwrap_or_else(|| of(1))
}

fn part(parts: &[Primitive], (name, state): (&str, &str)) -> Option<Nanos> {
    let found = parts.iter().find(|of| (of.name.as_str(), of.state.as_str()) == (name, state))?;
    Some(found.time)
}

fn less(time: Nanos, other: f64) -> Nanos {
    let less = |value: f64| (value - other).max(0.0);
    Nanos { median: less(time.median), low: less(time.low), high: less(time.high) }
}

/// The file, of which the lab's experiments can be run: `pageferry run EXPERIMENT --machine FILE`.
pub(crate) fn file(day: &str, realtime: bool) -> Result<String> {
    if !cfg!(target_arch = "x86_64") {
        return Err(BenchError::Usage("machine files of hosts are made on x86_64 only".to_owned()));
    }
    let found = caches();
    if found.is_empty() || found.iter().any(|cache| cache.line != LINE) {
        return Err(BenchError::Usage("the kernel does not describe the CPU's caches".to_owned()));
    }
    let cpus = raw::cpus()?;
    if cpus.len() < 2 {
        return Err(BenchError::Usage(
            "a machine file is of two CPUs, and this process may use one".to_owned(),
        ));
    }
    let surroundings = Surroundings::get();
    raw::pin(&cpus[..1])?;
    let cycle = cycle()?;
    let mut out = Writer { text: String::new(), day, cycle: cycle.median };
    let Surroundings { cpu, kernel, .. } = &surroundings;
    let (cpu, kernel) = (unquoted(cpu), unquoted(kernel));
    let _ = writeln!(
        out.text,
        "# Two CPUs of this host, as `pageferry host calibrate --machine` found them on {day}. What is not said here \
         is `today`'s.\n\n\
         extends = \"today\"\n\
         name = \"host\"\n\
         title = \"{cpu}, measured {day}\"\n\
         description = \"Two CPUs of {cpu}, Linux {kernel}: clock, caches and memory as measured on {day}.\"\n\n\
         [cpu]"
    );
    let mhz = Nanos { median: 1e3 / cycle.median, low: 1e3 / cycle.high, high: 1e3 / cycle.low };
    out.measured(
        "clock_mhz",
        mhz.median,
        (mhz.low, mhz.high),
        "MHz",
        "multiplications that wait for each other",
    );
    let call = timed(100, || {
        (0..100).for_each(|_| {
            black_box(rustix::process::getppid());
        })
    })?;
    for key in ["syscall_enter_cycles", "syscall_exit_cycles"] {
        out.cycles(key, scaled(call, 0.5), "half of a call of getppid");
    }
    let largest = found.iter().map(|cache| cache.bytes).max().unwrap_or(0);
    let behind = (4 * largest).clamp(8 << 20, MAX_MEMORY);
    let mut memory = Memory::own(behind)?;
    let mut before = 0;
    for cache @ Cache { level, bytes, .. } in &found {
        let _ = writeln!(out.text, "\n[[cache]]\nname = \"L{level}\"");
        out.geometry(cache);
        // Well within it, for others use it too, and well beyond the one before.
        let within = (bytes / 2).min(if before == 0 { usize::MAX } else { 4 * before });
        before = *bytes;
        let waits = latency(&mut memory, within)?;
        out.cycles("latency_cycles", waits, "loads that wait for each other");
        let (load, store) = streams(&mut memory, within)?;
        out.cycles("stream_load_cycles", load, "a sum over what lies within it");
        out.cycles("stream_store_cycles", store, "stores over what lies within it");
        out.line("write_policy", "\"back\"", "as all of the last twenty years", "assumed");
        out.line("exclusive", "false", "not told by the kernel", "assumed");
    }
    let _ = writeln!(out.text, "\n[memory]");
    let waits = latency(&mut memory, behind)?;
    out.measured("clock_mhz", mhz.median, (mhz.low, mhz.high), "MHz", "the CPU's own");
    let bounds = (waits.low, waits.high);
    out.measured(
        "latency_ns",
        waits.median,
        bounds,
        "ns",
        "loads that wait for each other, over four times the last cache",
    );
    let (load, store) = streams(&mut memory, behind)?;
    out.cycles("stream_load_cycles", load, "a sum over four times the last cache");
    out.cycles("stream_store_cycles", load, "the line is fetched first: as stream_load_cycles");
    let written = less(store, load.median);
    out.cycles(
        "writeback_cycles",
        written,
        "stores over four times the last cache, less what fetching takes",
    );
    let alone = streams(&mut memory, SHARED)?;
    drop(memory);
    raw::pin(&cpus)?;
    let parts = parts::measure(&[SHARED], realtime, &mut |_| ())?;
    let per_line = |of| Some(scaled(part(&parts, of)?, LINE as f64 / SHARED as f64));
    if let (Some(line), Some(read), Some(store)) =
        (part(&parts, parts::LINE), per_line(parts::READ_NEW), per_line(parts::STORE))
    {
        out.cycles("transfer_cycles", line, "a line that goes from CPU to CPU");
        out.cycles("stream_transfer_cycles", read, "reading what the other has stored");
        out.cycles("upgrade_cycles", line, "as transfer_cycles");
        out.cycles(
            "stream_upgrade_cycles",
            less(store, alone.1.median),
            "storing over what the other has read, less what one's own takes",
        );
    }
    let _ = writeln!(
        out.text,
        "\n\
         [sources]\n\
         host-calibrate = \"pageferry host calibrate --machine, {day}, on {cpu}, Linux {kernel}: medians of nine, with \
         the bounds that hold them with 95 %\""
    );
    Ok(out.text)
}

/// Nanoseconds of a line that is read, and of one that is stored to, in order.
fn streams(memory: &mut Memory, bytes: usize) -> Result<(Nanos, Nanos)> {
    let mut stamp = 0;
    let store = timed(bytes / LINE, || {
        stamp += 1;
        work::fill(memory.bytes_mut(0, bytes), stamp);
    })?;
    let load = timed(bytes / LINE, || {
        black_box(work::sum(memory.bytes(0, bytes)));
    })?;
    Ok((load, store))
}

/// What the kernel says of itself and of a CPU, as it can stand in a file's string.
fn unquoted(said: &str) -> String {
    said.chars().filter(|c| !c.is_control() && !matches!(c, '"' | '\\')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pageferry_model::MachineConfig;
    use proptest::prelude::*;

    fn writer() -> Writer<'static> {
        Writer { text: String::new(), day: "2026-11-25", cycle: 0.3 }
    }

    /// Whether the model takes a file whose only cache is this, of about the same size.
    fn loads(cache: &Cache) -> bool {
        let mut out = writer();
        let _ = writeln!(out.text, "extends = \"today\"\nname = \"host\"\n[[cache]]\nname = \"L1\"");
        out.geometry(cache);
        for key in ["latency_cycles", "stream_load_cycles", "stream_store_cycles"] {
            out.measured(key, 4.0, (4.0, 4.0), "cycles", "a guess");
        }
        out.line("write_policy", "\"back\"", "a guess", "assumed");
        out.line("exclusive", "false", "a guess", "assumed");
        let _ = writeln!(out.text, "[sources]\nhost-calibrate = \"a test\"");
        let machine = match MachineConfig::extending("host.toml", &out.text) {
            Ok(machine) => machine,
            Err(error) => panic!("{error}: {cache:?}\n{}", out.text),
        };
        let bytes = machine.cache[0].size_bytes.value as usize;
        bytes <= cache.bytes && 5 * bytes >= 4 * cache.bytes.min(1 << 30)
    }

    proptest! {
        /// Any cache that a kernel describes comes out as one that the model takes, of nearly its size.
        #[test]
        fn every_cache_has_a_nearest(sets in 1..300_000usize, ways in 0..40usize, slices in 1..60usize) {
            let cache = Cache { level: 3, bytes: sets * ways.max(1) * slices * LINE, ways, line: LINE };
            prop_assert!(loads(&cache), "{cache:?} as {:?}", nearest(&cache));
        }
    }

    #[test]
    fn caches_of_real_processors_have_a_nearest() {
        for (kilobytes, ways, near_kilobytes, near_ways) in [
            (32, 8, 32, 8),
            (48, 12, 48, 12),
            (1280, 20, 1280, 10),
            (36 << 10, 12, 36 << 10, 9),
            (105 << 10, 15, 104 << 10, 13),
            (260 << 10, 20, 256 << 10, 16),
        ] {
            let cache = Cache { level: 1, bytes: kilobytes << 10, ways, line: LINE };
            let nearest = nearest(&cache);
            assert_eq!((nearest.bytes >> 10, nearest.ways), (near_kilobytes, near_ways), "{cache:?}");
            assert!(loads(&cache), "{cache:?}");
        }
    }

    #[test]
    fn what_a_processor_is_called_stands_in_a_string() {
        assert_eq!(unquoted("Xeon(R) \"\\\n 2"), "Xeon(R)  2");
    }

    /// The model reads it, laid upon `today`.
    #[test]
    fn the_file_is_a_machine() {
        let text = match file("2026-11-25", false) {
            Ok(text) => text,
            Err(error) => return pageferry_untested::untested("the machine file of this host", error),
        };
        let machine = MachineConfig::extending("host.toml", &text).unwrap();
        assert_eq!((machine.name.as_str(), machine.cache.len()), ("host", caches().len()));
        let today = MachineConfig::named("today").unwrap();
        assert_eq!(machine.cpu.trap_enter_cycles, today.cpu.trap_enter_cycles);
        assert!(machine.cpu.clock_mhz.source.starts_with("host-calibrate"));
    }
}
