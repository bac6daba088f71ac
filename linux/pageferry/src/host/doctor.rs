//! What helps or hinders on this host, a line an item.
//!
//! # What it holds
//! The tricks that were tried (see [`Host`]), and what the files of /proc and /sys say: settings, limits, CPUs.
//! Each item says what was found, what it gives or what the library does without it, and the setting that would
//! change it. Files are read below a folder that is `/`, except where a test has made another.

use super::Host;
use super::files::Files;
use super::works::Works;
use crate::choose::HostCosts;
use std::path::Path;

/// How an item stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As it should be.
    Good,
    /// The library falls back to something dearer, or may be refused something.
    Hinders,
    /// Worth knowing; no setting is wrong.
    Note,
}

impl Verdict {
    /// The verdict as a word.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Good => "good",
            Verdict::Hinders => "hinders",
            Verdict::Note => "note",
        }
    }
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// A word for it.
    pub name: &'static str,
    /// How it stands.
    pub verdict: Verdict,
    /// What was found.
    pub found: String,
    /// What it gives, or what the library does without it.
    pub effect: &'static str,
    /// The setting that would change it, where one would.
    pub change: Option<&'static str>,
}

impl Host {
    /// What helps or hinders here.
    pub fn items(&self) -> Vec<Item> {
        let mut items = self.items_below(Path::new("/"));
        items.push(costs(HostCosts::load()));
        items
    }

    /// The same, with the files of /proc and /sys below another folder. What was tried is this process's own.
    pub fn items_below(&self, root: &Path) -> Vec<Item> {
        let files = Files::below(root);
        let tricks = TRICKS.iter().map(|trick| trick.item(self, &files));
        tricks.chain(SETTINGS.iter().map(|item| item(&files, self))).collect()
    }
}

/// A trick that was tried.
struct Trick {
    works: Works,
    name: &'static str,
    /// What it gives.
    gives: &'static str,
    /// What the library does without it.
    without: &'static str,
    change: &'static str,
    /// A setting that may be why it does not work: its file, what it must not be, and what to say then.
    why: Option<(&'static str, &'static str, &'static str)>,
}

impl Trick {
    fn item(&self, host: &Host, files: &Files) -> Item {
        let good = host.has(self.works);
        let why = self.why.filter(|&(file, bad, _)| files.setting(file).is_some_and(|value| value == bad));
        Item {
            name: self.name,
            verdict: if good { Verdict::Good } else { Verdict::Hinders },
            found: match (good, why) {
                (true, _) => "works".to_owned(),
                (false, None) => "does not work".to_owned(),
                (false, Some((_, _, why))) => format!("does not work: {why}"),
            },
            effect: if good { self.gives } else { self.without },
            change: (!good).then_some(self.change),
        }
    }
}

const TRICKS: &[Trick] = &[
    Trick {
        works: Works::MEMFD,
        name: "memfd",
        gives: "memory without a name, which the last user frees",
        without: "no channel can be made",
        change: "a kernel with CONFIG_MEMFD_CREATE, and a seccomp filter that allows memfd_create",
        why: None,
    },
    Trick {
        works: Works::COLLAPSE,
        name: "huge pages",
        gives: "pools are mapped by huge pages (MADV_COLLAPSE): a loan costs the same at any size",
        without: "pools are mapped by small pages: what is refilled is cheaper copied than lent",
        change: "Linux 6.1 or later with CONFIG_TRANSPARENT_HUGEPAGE; shmem_enabled other than `deny`",
        why: Some(("sys/kernel/mm/transparent_hugepage/shmem_enabled", "deny", "shmem_enabled is `deny`")),
    },
    Trick {
        works: Works::FREEZE,
        name: "freeze",
        gives: "a sender's view is made read-only by one mprotect before a message is sent",
        without: "channels have level sealed or copy",
        change: "a kernel that is Linux, not an emulation of it",
        why: None,
    },
    Trick {
        works: Works::PRIVATE,
        name: "private views",
        gives: "a receiver's view is its own: what it writes changes nothing for others",
        without: "channels have level sealed or copy",
        change: "a kernel that is Linux, not an emulation of it",
        why: None,
    },
    Trick {
        works: Works::ALIAS,
        name: "alias",
        gives: "what was mapped anew in the place of a slot is the slot again, by mremap from length 0",
        without: "no zero memory is left in the place of a donation, and lent memory is not copied on write",
        change: "a kernel that is Linux, not an emulation of it",
        why: None,
    },
    Trick {
        works: Works::FUTURE_WRITE,
        name: "FUTURE_WRITE",
        gives: "a receiver cannot write to the pool, whatever it does with its descriptor",
        without: "no channel can be made",
        change: "Linux 5.1 or later",
        why: None,
    },
    Trick {
        works: Works::DONT_NEED,
        name: "DONTNEED",
        gives: "what a receiver wrote to its view is forgotten when the loan is given back",
        without: "channels have level sealed or copy",
        change: "a kernel that is Linux, not an emulation of it",
        why: None,
    },
    Trick {
        works: Works::SEAL_WRITE,
        name: "seals",
        gives: "sealed memory: a snapshot for ever, against any peer",
        without: "no level sealed; guarded channels copy",
        change: "Linux 3.17 or later",
        why: None,
    },
    Trick {
        works: Works::PROC,
        name: "/proc",
        gives: "a receiver opens the pool once more, read-only",
        without: "a receiver keeps the descriptor that came, under the seal FUTURE_WRITE; no leases",
        change: "mount /proc",
        why: None,
    },
    Trick {
        works: Works::LEASE,
        name: "leases",
        gives: "file leases on memfds: the kernel's word that no writer is left, and the memory is used again",
        without: "no level leased: channels copy in its place",
        change: "fs.leases-enable=1, /proc, and a kernel whose tmpfs has leases",
        why: Some(("proc/sys/fs/leases-enable", "0", "fs.leases-enable is 0")),
    },
    Trick {
        works: Works::COUNT,
        name: "readers",
        gives: "the kernel says when the last reader of a block is gone, and the block is used again",
        without: "a block of memory is used once, and freed by its receiver",
        change: "fs.leases-enable=1, /proc, and a kernel whose tmpfs has leases",
        why: Some(("proc/sys/fs/leases-enable", "0", "fs.leases-enable is 0")),
    },
    Trick {
        works: Works::SCAN,
        name: "PAGEMAP_SCAN",
        gives: "the kernel counts the pages that a receiver wrote",
        without: "views that were made writable are thrown away unseen, and their pages not counted",
        change: "Linux 6.7 or later, and /proc",
        why: None,
    },
    Trick {
        works: Works::PEER_PIDFD,
        name: "SO_PEERPIDFD",
        gives: "a descriptor tells when the peer's process has ended, also across namespaces",
        without: "the hang-up of the socket alone tells; what was donated to a peer at fault stays away",
        change: "Linux 6.5 or later",
        why: None,
    },
    Trick {
        works: Works::LANDLOCK,
        name: "Landlock",
        gives: "a process can give up ptrace of others without a privilege",
        without: "no peer can be started confined: the level leased is for peers of good faith",
        change: "Linux 5.13 or later with CONFIG_SECURITY_LANDLOCK, and `landlock` in the parameter lsm=",
        why: None,
    },
];

type Setting = fn(&Files, &Host) -> Item;

const SETTINGS: &[Setting] = &[
    seccomp,
    seccomp_filter,
    ptrace,
    lease_break,
    thp_anonymous,
    thp_shmem,
    overcommit,
    cgroup_memory,
    limit_files,
    limit_file_size,
    limit_address_space,
    map_count,
    cpus,
    cpu_quota,
    idle_states,
    numa,
];

fn item(name: &'static str, verdict: Verdict, found: impl Into<String>, effect: &'static str) -> Item {
    Item { name, verdict, found: found.into(), effect, change: None }
}

impl Item {
    fn change(mut self, change: &'static str) -> Item {
        self.change = Some(change);
        self
    }
}

/// What `auto` decides by.
fn costs((costs, not_used): (HostCosts, Option<String>)) -> Item {
    const CALIBRATE: &str = "run `pageferry host calibrate`";
    let effect = "`auto` copies or lends by what was measured";
    let crate::choose::HostName { cpu, kernel, date, source } = costs.host;
    let found = format!("of {cpu}, Linux {kernel}, {date} ({source})");
    match not_used {
        Some(why) => {
            let why =
                why.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
            let effect = "`auto` copies or lends by what was measured on another host";
            item("costs", Verdict::Hinders, why, effect).change(CALIBRATE)
        }
        None if source == HostCosts::BUILT_IN => {
            item("costs", Verdict::Note, found, effect).change(CALIBRATE)
        }
        None => item("costs", Verdict::Good, found, effect),
    }
}

const NOT_SAID: &str = "not said by this host";

fn seccomp(files: &Files, _: &Host) -> Item {
    let actions = files.setting("proc/sys/kernel/seccomp/actions_avail");
    match actions.is_some_and(|actions| actions.split_whitespace().any(|action| action == "errno")) {
        true => {
            item("seccomp", Verdict::Good, "works", "a confined peer can be refused the calls that pin pages")
        }
        false => item(
            "seccomp",
            Verdict::Hinders,
            NOT_SAID,
            "no peer can be started confined: the level leased is for peers of good faith",
        )
        .change("a kernel with CONFIG_SECCOMP_FILTER"),
    }
}

fn seccomp_filter(files: &Files, _: &Host) -> Item {
    match files.status("Seccomp").as_deref() {
        Some("0") => item("seccomp filter", Verdict::Good, "none", "this process may make every call"),
        Some(_) => item(
            "seccomp filter",
            Verdict::Note,
            "this process is under one",
            "what it refuses was found by trial, above; one that kills instead ends the process at the trial",
        ),
        None => item("seccomp filter", Verdict::Note, NOT_SAID, "what it refuses was found by trial, above"),
    }
}

fn ptrace(files: &Files, _: &Host) -> Item {
    const ANY: &str = "any process of the same user can write into this one (ptrace, /proc/PID/mem): no level \
                       holds against one that does, unless it is confined";
    let scope = files.setting("proc/sys/kernel/yama/ptrace_scope");
    match scope.as_deref() {
        None => item("ptrace", Verdict::Note, "Yama is not there", ANY)
            .change("CONFIG_SECURITY_YAMA, and kernel.yama.ptrace_scope=1 or more"),
        Some("0") => {
            item("ptrace", Verdict::Note, "ptrace_scope 0", ANY).change("kernel.yama.ptrace_scope=1")
        }
        Some("1") => item(
            "ptrace",
            Verdict::Good,
            "ptrace_scope 1",
            "only a parent can write into a process of the same user; no level holds against that",
        ),
        Some(scope) => item(
            "ptrace",
            Verdict::Good,
            format!("ptrace_scope {scope}"),
            "processes of the same user cannot write into each other",
        ),
    }
}

fn lease_break(files: &Files, _: &Host) -> Item {
    let effect = "a message that is held for less is whole, whatever its sender opens meanwhile";
    let change = "fs.lease-break-time, in seconds";
    match files.number("proc/sys/fs/lease-break-time") {
        None => item("lease break", Verdict::Note, NOT_SAID, effect),
        Some(seconds @ 0..10) => {
            item("lease break", Verdict::Hinders, format!("{seconds} s"), effect).change(change)
        }
        Some(seconds) => item("lease break", Verdict::Good, format!("{seconds} s"), effect),
    }
}

fn thp_anonymous(files: &Files, host: &Host) -> Item {
    const NAME: &str = "huge copies";
    const SMALL: &str = "the memory that copies go to has small pages: its first use is dearer";
    match files.chosen("sys/kernel/mm/transparent_hugepage/enabled").as_deref() {
        Some("never") => item(NAME, Verdict::Hinders, "enabled is `never`", SMALL)
            .change("/sys/kernel/mm/transparent_hugepage/enabled: madvise or always"),
        Some(how) => item(
            NAME,
            Verdict::Good,
            format!("enabled is `{how}`"),
            "the memory that copies of 1 MB and more go to has huge pages",
        ),
        None if host.huge_page_bytes() > 0 => item(NAME, Verdict::Note, NOT_SAID, SMALL),
        None => item(NAME, Verdict::Hinders, "the kernel has no huge pages", SMALL)
            .change("a kernel with CONFIG_TRANSPARENT_HUGEPAGE"),
    }
}

fn thp_shmem(files: &Files, _: &Host) -> Item {
    const NAME: &str = "huge shmem";
    match files.chosen("sys/kernel/mm/transparent_hugepage/shmem_enabled").as_deref() {
        Some("deny") => item(NAME, Verdict::Hinders, "shmem_enabled is `deny`", "pools have small pages")
            .change("/sys/kernel/mm/transparent_hugepage/shmem_enabled: never, advise or always"),
        Some(how) => item(
            NAME,
            Verdict::Good,
            format!("shmem_enabled is `{how}`"),
            "pools are made of huge pages by MADV_COLLAPSE, which no setting but `deny` stops",
        ),
        None => {
            item(NAME, Verdict::Note, NOT_SAID, "whether pools have huge pages was found by trial, above")
        }
    }
}

fn overcommit(files: &Files, _: &Host) -> Item {
    match files.setting("proc/sys/vm/overcommit_memory").as_deref() {
        Some("2") => item(
            "overcommit",
            Verdict::Hinders,
            "2: never",
            "every writable private view counts: views are read-only until they are written to",
        )
        .change("vm.overcommit_memory=0"),
        Some(mode) => {
            item("overcommit", Verdict::Good, mode, "views do not count as memory until they are written")
        }
        None => item(
            "overcommit",
            Verdict::Note,
            NOT_SAID,
            "taken for 0: views do not count until they are written",
        ),
    }
}

fn cgroup_memory(files: &Files, _: &Host) -> Item {
    const EFFECT: &str = "a pool is touched when it is made, and counts where it is made; what does not fit is \
                          refused there or ends in the out-of-memory killer, and never in the middle of a store";
    match files.cgroup_memory() {
        Some((limit, used)) => {
            let left = limit.saturating_sub(used);
            let verdict = if left < 256 << 20 { Verdict::Hinders } else { Verdict::Note };
            item("cgroup memory", verdict, format!("{} of {} used", size(used), size(limit)), EFFECT)
                .change("memory.max of the control group (of a container: its memory limit)")
        }
        None => item("cgroup memory", Verdict::Good, "no limit", "pools are bounded by the host's memory"),
    }
}

/// Descriptors of a channel, on one side: socket, rings, pool, and a few on their way.
const FDS_OF_A_CHANNEL: u64 = 12;

fn limit_files(files: &Files, _: &Host) -> Item {
    const EFFECT: &str =
        "a channel takes less than 12 descriptors, and one more for each sealed message on its way";
    match files.limit("Max open files") {
        Some(Some(limit)) => {
            let verdict = if limit < 16 * FDS_OF_A_CHANNEL { Verdict::Hinders } else { Verdict::Good };
            let found = format!("{limit}: about {} channels", limit / FDS_OF_A_CHANNEL);
            let item = item("open files", verdict, found, EFFECT);
            if verdict == Verdict::Good { item } else { item.change("RLIMIT_NOFILE (`ulimit -n`)") }
        }
        Some(None) => item("open files", Verdict::Good, "no limit", EFFECT),
        None => item("open files", Verdict::Note, NOT_SAID, EFFECT),
    }
}

fn limit_file_size(files: &Files, _: &Host) -> Item {
    const EFFECT: &str = "a pool that is longer is refused: the limit counts for memory without a name too";
    limited(files, "file size", "Max file size", EFFECT, "RLIMIT_FSIZE (`ulimit -f`)")
}

fn limit_address_space(files: &Files, _: &Host) -> Item {
    const EFFECT: &str = "a sender takes twice its pool of addresses, a receiver up to three times, and 2 MB more for \
                          each mapping";
    limited(files, "address space", "Max address space", EFFECT, "RLIMIT_AS (`ulimit -v`)")
}

fn limited(
    files: &Files,
    name: &'static str,
    limit: &str,
    effect: &'static str,
    change: &'static str,
) -> Item {
    match files.limit(limit) {
        Some(Some(bytes)) => item(name, Verdict::Hinders, size(bytes), effect).change(change),
        Some(None) => item(name, Verdict::Good, "no limit", "pools are not bounded by it"),
        None => item(name, Verdict::Note, NOT_SAID, effect),
    }
}

fn map_count(files: &Files, _: &Host) -> Item {
    const EFFECT: &str = "a slot takes two mappings of each process";
    match files.number("proc/sys/vm/max_map_count") {
        Some(count) if count < 16_384 => item("mappings", Verdict::Hinders, count.to_string(), EFFECT)
            .change("vm.max_map_count=65530 or more"),
        Some(count) => item("mappings", Verdict::Good, count.to_string(), EFFECT),
        None => item("mappings", Verdict::Note, NOT_SAID, EFFECT),
    }
}

fn cpus(files: &Files, _: &Host) -> Item {
    let online = files.setting("sys/devices/system/cpu/online");
    let allowed = files.status("Cpus_allowed_list");
    match allowed.or(online) {
        Some(list) => {
            let count = count_of_list(&list);
            let found = format!("{count} ({list})");
            if count < 2 {
                let effect = "a side that waits sleeps at once: looking would keep its peer from running";
                return item("CPUs", Verdict::Hinders, found, effect)
                    .change("a second CPU, or a wider affinity");
            }
            item("CPUs", Verdict::Good, found, "a side that waits looks for a while before it sleeps")
        }
        None => {
            item("CPUs", Verdict::Note, NOT_SAID, "a side that waits looks for a while where there are two")
        }
    }
}

fn cpu_quota(files: &Files, _: &Host) -> Item {
    const EFFECT: &str =
        "a side that waits without sleeping (`Config::spin`) uses the quota up, and is then stopped";
    match files.cpu_quota() {
        Some(cpus) => item("CPU quota", Verdict::Hinders, format!("{cpus:.2} CPUs"), EFFECT).change(
            "cpu.max of the control group (of a container: its CPU limit); or a short `Config::spin`",
        ),
        None => item("CPU quota", Verdict::Good, "no limit", "waiting without sleeping is not punished"),
    }
}

fn idle_states(files: &Files, _: &Host) -> Item {
    const EFFECT: &str = "a CPU without work goes there, and a side that sleeps wakes so much later";
    let driver = files.setting("sys/devices/system/cpu/cpuidle/current_driver");
    match (files.deepest_idle(), driver.as_deref()) {
        (Some((name, us)), driver) => {
            let found = format!("down to {name}, {us} us ({})", driver.unwrap_or("driver unknown"));
            let verdict = if us > 50 { Verdict::Hinders } else { Verdict::Note };
            let item = item("idle states", verdict, found, EFFECT);
            if verdict == Verdict::Note {
                return item;
            }
            item.change("/dev/cpu_dma_latency, or cpuidle/state*/disable; or a long `Config::spin`")
        }
        (None, Some("haltpoll")) => item(
            "idle states",
            Verdict::Good,
            "haltpoll",
            "a guest's CPU without work looks for a while before it halts: sleepers wake sooner",
        ),
        (None, _) => item(
            "idle states",
            Verdict::Note,
            "none that this kernel knows",
            "a guest that halts hands its CPU to the hypervisor: what a wake-up costs, `pageferry host bench` says",
        ),
    }
}

fn numa(files: &Files, _: &Host) -> Item {
    match files.setting("sys/devices/system/node/online") {
        Some(list) if count_of_list(&list) > 1 => item(
            "NUMA",
            Verdict::Note,
            format!("{} nodes ({list})", count_of_list(&list)),
            "a pool lies on the node of the sender's CPU when it is made; a receiver on another reads it from there",
        )
        .change("numactl, so that both sides run on one node"),
        Some(list) => item("NUMA", Verdict::Good, format!("1 node ({list})"), "all memory is equally far"),
        None => item("NUMA", Verdict::Good, "no nodes", "all memory is equally far"),
    }
}

/// How many numbers a list of the kernel's names, such as `0-3,8`.
fn count_of_list(list: &str) -> u64 {
    let of = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u64, u64) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    list.split(',').filter_map(of).fold(0, u64::saturating_add)
}

/// Bytes for people.
fn size(bytes: u64) -> String {
    let units = [(30, "GB"), (20, "MB"), (10, "KB")];
    match units.iter().find(|(shift, _)| bytes >= 1 << shift) {
        Some((shift, unit)) => format!("{:.1} {unit}", bytes as f64 / (1u64 << shift) as f64),
        None => format!("{bytes} bytes"),
    }
}
