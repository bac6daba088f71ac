//! What the times depend on besides the program.

use serde::Serialize;
use std::fs;

/// What the times depend on besides the program.
#[derive(Clone, Debug, Serialize)]
pub struct Surroundings {
    /// The CPU's model name.
    pub cpu: String,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// The kernel's release.
    pub kernel: String,
    /// Load before, over 1, 5 and 15 minutes.
    pub load: String,
    /// How the CPUs idle: the driver and its states.
    pub idle: String,
    /// Whether the kernel says that it runs on a hypervisor.
    pub guest: bool,
    /// Bytes of memory that are free.
    pub free_bytes: u64,
}

fn first_line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().next().map(|line| line.trim().to_owned())
}

/// The value of a line `name: value` of a file.
fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

fn idle() -> String {
    let cpuidle = "/sys/devices/system/cpu/cpuidle/current_driver";
    let driver = first_line(cpuidle).unwrap_or_else(|| "unknown".to_owned());
    let state = |index: u32| first_line(&format!("/sys/devices/system/cpu/cpu0/cpuidle/state{index}/name"));
    let states: Vec<_> = (0..16).map_while(state).collect();
    if states.is_empty() { driver } else { format!("{driver}: {}", states.join(", ")) }
}

/// A cache, as the kernel describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cache {
    pub(crate) level: u32,
    pub(crate) bytes: usize,
    pub(crate) ways: usize,
    pub(crate) line: usize,
}

/// Data caches of the first CPU, the smallest first.
pub(crate) fn caches() -> Vec<Cache> {
    let read = |index: u32, name: &str| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{name}");
        Some(fs::read_to_string(path).ok()?.trim().to_owned())
    };
    let number = |index: u32, name: &str| read(index, name)?.parse().ok();
    let cache = |index: u32| {
        if read(index, "type")? == "Instruction" {
            return None;
        }
        Some(Cache {
            level: number(index, "level")? as u32,
            bytes: read(index, "size")?.strip_suffix('K')?.parse::<usize>().ok()? << 10,
            ways: number(index, "ways_of_associativity")?,
            line: number(index, "coherency_line_size")?,
        })
    };
    let mut caches: Vec<_> = (0..8).filter_map(cache).collect();
    caches.sort_by_key(|cache| cache.level);
    caches
}

impl Surroundings {
    /// Of this process now.
    pub fn get() -> Surroundings {
        Surroundings {
            cpu: pageferry::choose::cpu_name(),
            cpus: crate::raw::cpus().map_or(1, |cpus| cpus.len()),
            kernel: pageferry::choose::kernel_release(),
            load: first_line("/proc/loadavg").unwrap_or_default(),
            idle: idle(),
            guest: field("/proc/cpuinfo", "flags")
                .is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor")),
            free_bytes: field("/proc/meminfo", "MemAvailable")
                .and_then(|value| value.split_whitespace().next()?.parse::<u64>().ok())
                .map_or(u64::MAX, |kilobytes| kilobytes << 10),
        }
    }
}

impl core::fmt::Display for Surroundings {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Surroundings { cpu, cpus, kernel, load, idle, guest, .. } = self;
        let guest = if *guest { ", on a hypervisor" } else { "" };
        write!(out, "{cpu}, {cpus} CPUs{guest}; Linux {kernel}; load {load}; idle by {idle}")
    }
}
