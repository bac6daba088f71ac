//! What `Host::items` says of made-up hosts: files of /proc and /sys below a temporary folder.

use pageferry::host::{Host, Item, Verdict};
use std::path::Path;

/// A host whose files say just this.
fn host(files: &[(&str, &str)]) -> Vec<Item> {
    let root = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let at = root.path().join(name);
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        std::fs::write(at, text).unwrap();
    }
    Host::get().items_below(root.path())
}

fn of<'a>(items: &'a [Item], name: &str) -> &'a Item {
    let mut found = items.iter().filter(|item| item.name == name);
    let item = found.next().unwrap_or_else(|| panic!("there is an item `{name}`"));
    assert!(found.next().is_none(), "one item is `{name}`");
    item
}

/// One item of a host, of which one file is known.
fn with(name: &str, file: &str, text: &str) -> (Verdict, String, bool) {
    let items = host(&[(file, text)]);
    let item = of(&items, name);
    (item.verdict, item.found.clone(), item.change.is_some())
}

#[test]
fn this_host_has_every_item_once_and_what_hinders_names_a_setting() {
    let items = Host::probe().items();
    assert!(items.len() > 20);
    for item in &items {
        assert_eq!(of(&items, item.name), item);
        assert!(!item.found.is_empty() && !item.effect.is_empty());
        assert_eq!(item.found.lines().count(), 1, "{item:?}");
        assert!(item.verdict != Verdict::Hinders || item.change.is_some(), "{item:?}");
    }
}

/// A process reads its file once, so each file has a process of its own.
#[cfg(feature = "host-file")]
#[test]
fn a_file_of_costs_that_is_not_used_is_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("host.toml");
    let found = |text: Option<&str>| {
        let _ = std::fs::remove_file(&path);
        text.into_iter().for_each(|text| std::fs::write(&path, text).unwrap());
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "doctor::child_with_a_file_of_costs", "--ignored", "--nocapture"]);
        let output = child.env("PAGEFERRY_HOST", &path).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(found(None).contains("Note of"));
    let broken = found(Some("x = 1\n"));
    assert!(
        broken.contains("Hinders ") && broken.contains("host.toml is not used") && broken.contains("`x`")
    );
    let mut costs = pageferry::choose::HostCosts::built_in();
    costs.host.cpu = "another".to_owned();
    assert!(found(Some(&toml::to_string(&costs).unwrap())).contains("it is of the CPU `another`"));
    costs.host.cpu = pageferry::choose::cpu_name();
    costs.host.kernel = pageferry::choose::kernel_release();
    costs.host.source = "host calibrate".to_owned();
    assert!(found(Some(&toml::to_string(&costs).unwrap())).contains("Good of"));
}

#[test]
#[ignore = "started by another test"]
fn child_with_a_file_of_costs() {
    let items = Host::get().items();
    let item = of(&items, "costs");
    println!("{:?} {}", item.verdict, item.found);
}

#[test]
fn a_host_without_files_hinders_nothing_that_it_does_not_say() {
    let items = host(&[]);
    let known = Host::get().items_below(Path::new("/nonexistent"));
    assert_eq!(items, known);
    let hindering: Vec<_> = items.iter().filter(|item| item.verdict == Verdict::Hinders).collect();
    let tried = ["seccomp", "huge copies"];
    let real = Host::get().items();
    let by_trial = |item: &Item| real.iter().any(|real| real.name == item.name && real.found == item.found);
    assert!(hindering.iter().all(|item| tried.contains(&item.name) || by_trial(item)), "{hindering:?}");
}

#[test]
fn files_that_say_something_else_are_as_good_as_none() {
    let odd = [
        ("proc/self/limits", "Max open files\nMax file size soft hard\n"),
        ("proc/self/cgroup", "::\n4:memory\n0::/../../x\n"),
        ("proc/self/status", "Cpus_allowed_list:\tall of them\nSeccomp\n"),
        ("proc/sys/fs/lease-break-time", "-5\n"),
        ("proc/sys/vm/max_map_count", "many"),
        ("sys/fs/cgroup/cpu.max", "max"),
        ("sys/kernel/mm/transparent_hugepage/enabled", "always ]madvise["),
        ("sys/devices/system/node/online", "9-2,x"),
        ("sys/devices/system/cpu/cpu0/cpuidle/state1/latency", "18446744073709551616"),
    ];
    let items = host(&odd);
    let none = host(&[]);
    for name in
        ["open files", "file size", "cgroup memory", "CPU quota", "lease break", "mappings", "idle states"]
    {
        assert_eq!(of(&items, name), of(&none, name));
    }
    assert_eq!(of(&items, "NUMA").verdict, Verdict::Good);
}

#[test]
fn settings_of_huge_pages() {
    let file = "sys/kernel/mm/transparent_hugepage/shmem_enabled";
    let (verdict, found, change) = with("huge shmem", file, "always within_size advise [never] deny force\n");
    assert_eq!((verdict, found.as_str(), change), (Verdict::Good, "shmem_enabled is `never`", false));
    let (verdict, found, change) = with("huge shmem", file, "always within_size advise never [deny] force\n");
    assert_eq!((verdict, found.as_str(), change), (Verdict::Hinders, "shmem_enabled is `deny`", true));
    let file = "sys/kernel/mm/transparent_hugepage/enabled";
    assert_eq!(with("huge copies", file, "always [madvise] never\n").0, Verdict::Good);
    assert_eq!(with("huge copies", file, "always madvise [never]\n").0, Verdict::Hinders);
}

#[test]
fn ptrace_scopes() {
    let file = "proc/sys/kernel/yama/ptrace_scope";
    assert_eq!(of(&host(&[]), "ptrace").verdict, Verdict::Note);
    assert_eq!(with("ptrace", file, "0\n"), (Verdict::Note, "ptrace_scope 0".into(), true));
    assert_eq!(with("ptrace", file, "1\n"), (Verdict::Good, "ptrace_scope 1".into(), false));
    assert_eq!(with("ptrace", file, "3\n"), (Verdict::Good, "ptrace_scope 3".into(), false));
}

#[test]
fn settings_of_leases_and_of_memory() {
    let file = "proc/sys/fs/lease-break-time";
    assert_eq!(with("lease break", file, "45\n"), (Verdict::Good, "45 s".into(), false));
    assert_eq!(with("lease break", file, "1\n"), (Verdict::Hinders, "1 s".into(), true));
    let file = "proc/sys/vm/overcommit_memory";
    assert_eq!(with("overcommit", file, "2\n"), (Verdict::Hinders, "2: never".into(), true));
    assert_eq!(with("overcommit", file, "1\n"), (Verdict::Good, "1".into(), false));
    let file = "proc/sys/vm/max_map_count";
    assert_eq!(with("mappings", file, "65530\n").0, Verdict::Good);
    assert_eq!(with("mappings", file, "1000\n"), (Verdict::Hinders, "1000".into(), true));
}

/// In a process of its own, since calls fail in a whole process.
#[test]
fn a_lease_that_fails_by_its_setting_says_so() {
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "doctor::child_whose_calls_fail", "--ignored", "--nocapture"]);
    let output = child.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
}

#[test]
#[ignore = "started by another test"]
fn child_whose_calls_fail() {
    let calls = ["F_SETLEASE", "landlock_create_ruleset", "MADV_COLLAPSE", "PAGEMAP_SCAN", "SO_PEERPIDFD"];
    for call in calls {
        pageferry::verify::fail(call, 1, 0);
    }
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join("proc/sys/fs")).unwrap();
    let failed = Host::probe();
    let items = failed.items_below(root.path());
    for name in ["leases", "Landlock", "huge pages", "PAGEMAP_SCAN", "SO_PEERPIDFD"] {
        let item = of(&items, name);
        assert_eq!((item.verdict, item.found.as_str()), (Verdict::Hinders, "does not work"));
        assert!(item.change.is_some());
    }
    assert_eq!(of(&items, "freeze").verdict, Verdict::Good);
    std::fs::write(root.path().join("proc/sys/fs/leases-enable"), "0\n").unwrap();
    let items = failed.items_below(root.path());
    assert_eq!(of(&items, "leases").found, "does not work: fs.leases-enable is 0");
    pageferry::verify::restore();
    let items = Host::probe().items_below(root.path());
    assert_eq!(of(&items, "huge pages").verdict, of(&Host::get().items(), "huge pages").verdict);
}

const LIMITS: &str = "\
Limit                     Soft Limit           Hard Limit           Units     
Max cpu time              unlimited            unlimited            seconds   
Max file size             1048576              unlimited            bytes     
Max open files            64                   1048576              files     
Max address space         unlimited            unlimited            bytes     
";

#[test]
fn limits_of_the_process() {
    let items = host(&[("proc/self/limits", LIMITS)]);
    let found = |name| (of(&items, name).verdict, of(&items, name).found.as_str());
    assert_eq!(found("file size"), (Verdict::Hinders, "1.0 MB"));
    assert_eq!(found("open files"), (Verdict::Hinders, "64: about 5 channels"));
    assert_eq!(found("address space"), (Verdict::Good, "no limit"));
    let items = host(&[("proc/self/limits", &LIMITS.replace("64  ", "1024"))]);
    assert_eq!(of(&items, "open files").verdict, Verdict::Good);
}

#[test]
fn the_tightest_control_group_counts() {
    let v2 = [
        ("proc/self/cgroup", "0::/outer/inner\n"),
        ("sys/fs/cgroup/outer/inner/memory.max", "max\n"),
        ("sys/fs/cgroup/outer/memory.max", "536870912\n"),
        ("sys/fs/cgroup/outer/memory.current", "104857600\n"),
        ("sys/fs/cgroup/outer/inner/cpu.max", "50000 100000\n"),
        ("sys/fs/cgroup/outer/cpu.max", "max 100000\n"),
    ];
    let items = host(&v2);
    assert_eq!(of(&items, "cgroup memory").found, "100.0 MB of 512.0 MB used");
    assert_eq!(of(&items, "cgroup memory").verdict, Verdict::Note);
    assert_eq!(of(&items, "CPU quota").found, "0.50 CPUs");
    let v1 = [
        ("proc/self/cgroup", "4:memory:/a\n1:cpu,cpuacct:/b\n0::/\n"),
        ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "134217728\n"),
        ("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "0\n"),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ("sys/fs/cgroup/cpu/b/cpu.cfs_quota_us", "-1\n"),
        ("sys/fs/cgroup/cpu/b/cpu.cfs_period_us", "100000\n"),
    ];
    let items = host(&v1);
    assert_eq!(of(&items, "cgroup memory").found, "0 bytes of 128.0 MB used");
    assert_eq!(of(&items, "cgroup memory").verdict, Verdict::Hinders);
    assert_eq!(of(&items, "CPU quota").found, "no limit");
}

#[test]
fn cpus_nodes_and_idle_states() {
    let one = with("CPUs", "proc/self/status", "Name:\tx\nCpus_allowed_list:\t3\n");
    assert_eq!(one, (Verdict::Hinders, "1 (3)".into(), true));
    let four = with("CPUs", "sys/devices/system/cpu/online", "0-2,7\n");
    assert_eq!(four, (Verdict::Good, "4 (0-2,7)".into(), false));
    assert_eq!(with("NUMA", "sys/devices/system/node/online", "0-1\n").1, "2 nodes (0-1)");
    let states = "sys/devices/system/cpu/cpu0/cpuidle";
    let file = |state, file| format!("{states}/{state}/{file}");
    let deep = [
        (file("state1", "name"), "C1\n"),
        (file("state1", "latency"), "2\n"),
        (file("state2", "name"), "C6\n"),
        (file("state2", "latency"), "133\n"),
        (file("state2", "disable"), "0\n"),
        ("sys/devices/system/cpu/cpuidle/current_driver".into(), "intel_idle\n"),
    ];
    let borrowed: Vec<_> = deep.iter().map(|(file, text)| (file.as_str(), *text)).collect();
    let items = host(&borrowed);
    assert_eq!(of(&items, "idle states").found, "down to C6, 133 us (intel_idle)");
    assert_eq!(of(&items, "idle states").verdict, Verdict::Hinders);
    let mut off = borrowed.clone();
    off[4].1 = "1\n";
    assert_eq!(of(&host(&off), "idle states").found, "down to C1, 2 us (intel_idle)");
}

#[test]
fn filters_of_system_calls() {
    let file = "proc/sys/kernel/seccomp/actions_avail";
    assert_eq!(with("seccomp", file, "kill_process errno allow\n").0, Verdict::Good);
    assert_eq!(with("seccomp filter", "proc/self/status", "Seccomp:\t0\n").0, Verdict::Good);
    assert_eq!(with("seccomp filter", "proc/self/status", "Seccomp:\t2\n").0, Verdict::Note);
}
