//! Programs that were started confined. The child is this program again: it tries everything that it must not be
//! able to do, by raw system calls, and tells what came of it. An unconfined child tries the same, so that an
//! attempt that fails for a reason of its own is seen.

mod attempts;
mod child;

use pageferry::*;
use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::sync::Mutex;

/// Injected faults, and descriptors that are left open on purpose, are the whole process's.
static ALONE: Mutex<()> = Mutex::new(());

/// How an attempt ended: 0, or the error number.
type Outcomes = BTreeMap<String, i32>;

fn config() -> Config {
    Config::new().slots(2).slot_bytes(2 << 20)
}

fn command() -> Command {
    Command::new(std::env::current_exe().unwrap()).args(["--exact", "child::runs_here", "--nocapture"])
}

/// Whether this host has what a confinement needs; the tests have nothing to say of one that has not.
fn can_confine() -> bool {
    let items = host::Host::get().items();
    let good = |name| items.iter().any(|item| item.name == name && item.verdict == host::Verdict::Good);
    good("Landlock") && good("seccomp")
}

/// A word of this process that children try to overwrite.
static TARGET: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
const INTACT: u64 = 0x1122_3344_5566_7788;

struct Files {
    folder: tempfile::TempDir,
}

impl Files {
    fn new() -> Files {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("allowed")).unwrap();
        std::fs::write(folder.path().join("allowed/file"), "readable").unwrap();
        std::fs::write(folder.path().join("secret"), "secret").unwrap();
        Files { folder }
    }

    fn allowed(&self) -> std::path::PathBuf {
        self.folder.path().join("allowed")
    }
}

/// Has the child try everything; what it says, and whether it could write to this process.
fn attempts(child: &mut Child<trust::Guarded>, files: &Files, level: Level) -> (Outcomes, bool) {
    use std::sync::atomic::Ordering;
    TARGET.store(INTACT, Ordering::SeqCst);
    let to_child = child.sender(config().level(level)).unwrap();
    let from_child = child.receiver(config().level(Level::Sealed)).unwrap();
    let order = format!("{} {} {}", TARGET.as_ptr() as usize, LEAKED, files.folder.path().display());
    let mut buffer = to_child.buffer(order.len()).unwrap();
    buffer.copy_from_slice(order.as_bytes());
    let lent = to_child.loan(buffer).unwrap();
    let told = from_child.recv_timeout(std::time::Duration::from_secs(120)).unwrap();
    assert_eq!(told.level(), Level::Sealed);
    let text = std::str::from_utf8(&told).unwrap();
    let outcomes = text.lines().map(|line| {
        let (name, number) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), number.parse().unwrap())
    });
    let outcomes = outcomes.collect();
    drop(told);
    drop((to_child, from_child));
    assert!(child.process().wait().unwrap().success());
    lent.wait().unwrap();
    (outcomes, TARGET.load(Ordering::SeqCst) == INTACT)
}

/// A number that no other descriptor of this program has.
const LEAKED: i32 = 777;

/// Leaves a descriptor open without O_CLOEXEC, as careless code does.
struct Leak;

impl Leak {
    fn new() -> Leak {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(attempts::dup_to(file.as_raw_fd(), LEAKED), LEAKED);
        Leak
    }
}

impl Drop for Leak {
    fn drop(&mut self) {
        attempts::close(LEAKED);
    }
}

#[test]
fn a_confined_child_is_refused_what_an_unconfined_one_can_do() {
    if !can_confine() {
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let _leak = Leak::new();
    let files = Files::new();
    let (plain, _) = attempts(&mut command().spawn().unwrap(), &files, Level::Mmu);
    let mut child = command().confined().allow_read(files.allowed()).spawn().unwrap();
    assert_eq!(child.gaps(), Some(&[][..]));
    let (confined, intact) = attempts(&mut child, &files, Level::Mmu);
    assert!(intact);
    assert_eq!(plain.keys().collect::<Vec<_>>(), confined.keys().collect::<Vec<_>>());
    for (name, expected) in attempts::EXPECTED {
        println!("{name}: {} unconfined, {} confined", plain[*name], confined[*name]);
        let scoped = *name != "signal to the parent" || attempts::landlock_abi() >= 6;
        assert_eq!(confined[*name], if scoped { *expected } else { 0 }, "{name} when confined");
    }
    // What this host lets a plain child do, whatever its settings: the attempts themselves are sound.
    for name in
        ["leaked descriptor", "secret file", "socket of the internet", "io_setup", "vmsplice", "openat2"]
    {
        assert_eq!(plain[name], 0, "{name} when unconfined");
    }
    let allowed =
        ["allowed file", "memory opened again", "own page map", "allowed folder", "a thread", "getrandom"];
    for name in allowed {
        assert_eq!((plain[name], confined[name]), (0, 0), "{name}");
    }
    assert_eq!(plain["huge pages"], confined["huge pages"], "1: the child's pool has huge pages");
    assert_eq!(attempts::EXPECTED.len() + allowed.len() + 1, confined.len(), "{confined:?}");
}

#[test]
fn channels_to_and_from_a_confined_child_work_at_every_level_that_is_asked_for() {
    if !can_confine() {
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let _leak = Leak::new();
    let files = Files::new();
    for level in [Level::Sealed, Level::Mmu, Level::Copy] {
        let mut child = command().confined().spawn().unwrap();
        let (outcomes, intact) = attempts(&mut child, &files, level);
        assert!(intact);
        assert_eq!(outcomes["allowed file"], libc::EACCES, "nothing was allowed");
    }
}

#[test]
fn a_path_that_is_not_there_is_named() {
    if !can_confine() {
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let error = command().confined().allow_read("/no/such/folder").spawn().unwrap_err();
    assert!(matches!(&error, Error::Usage(Usage::Path { path, .. }) if path.ends_with("folder")), "{error}");
    assert!(error.to_string().contains("/no/such/folder"), "{error}");
}

#[test]
fn a_program_that_is_not_there_is_an_error_of_exec() {
    if !can_confine() {
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let error = Command::new("/no/such/program").confined().spawn().unwrap_err();
    let Error::Host(HostFault::Failed { failed }) = error else { panic!("{error}") };
    assert_eq!((failed.call, failed.errno.raw_os_error()), ("execve", libc::ENOENT));
}

#[test]
fn a_script_needs_its_interpreter_to_be_allowed() {
    if !can_confine() {
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    std::fs::write(&script, "#!/bin/sh\nexit 7\n").unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let error = Command::new(&script).confined().spawn().unwrap_err();
    let Error::Host(HostFault::Failed { failed }) = error else { panic!("{error}") };
    assert_eq!((failed.call, failed.errno.raw_os_error()), ("execve", libc::EACCES));
    let mut child = Command::new(&script).confined().allow_read("/bin/sh").spawn().unwrap();
    assert_eq!(child.process().wait().unwrap().code(), Some(7));
}

#[test]
fn a_program_is_found_by_path() {
    if !can_confine() {
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut child = Command::new("true").confined().spawn().unwrap();
    assert!(child.process().wait().unwrap().success());
}

#[cfg(feature = "verify")]
mod lacking {
    use super::*;

    const PARTS: [(&str, Gap); 3] = [
        ("landlock_create_ruleset", Gap::Landlock),
        ("seccomp", Gap::Filters),
        ("close_range", Gap::Descriptors),
    ];

    #[test]
    fn what_the_host_lacks_is_an_error_unless_it_may_be_left_out() {
        if !can_confine() {
            return;
        }
        let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let _leak = Leak::new();
        let files = Files::new();
        for (call, gap) in PARTS {
            verify::fail(call, libc::ENOSYS, 0);
            let error = command().confined().spawn().unwrap_err();
            assert!(matches!(error, Error::Host(HostFault::Unsupported { .. })), "{error}");
            assert!(error.to_string().contains("Linux") || error.to_string().contains("CONFIG"), "{error}");
            let child = command().confined().as_far_as_possible().allow_read(files.allowed()).spawn();
            verify::restore();
            let mut child = child.unwrap();
            assert_eq!(child.gaps(), Some(&[gap][..]));
            let (outcomes, _) = attempts(&mut child, &files, Level::Mmu);
            // Each part is what refuses what it is there for.
            let refused = |name: &str| outcomes[name] != 0;
            assert_eq!(refused("secret file"), gap != Gap::Landlock);
            assert_eq!(refused("io_setup"), gap != Gap::Filters);
            assert_eq!(refused("leaked descriptor"), gap != Gap::Descriptors);
            // Against these there are two.
            assert!(
                ["ptrace", "process_vm_writev", "pidfd_getfd of the parent"]
                    .map(refused)
                    .iter()
                    .all(|&it| it)
            );
        }
    }
}

#[test]
fn the_program_itself_may_be_confined_and_a_plain_child_has_no_gaps() {
    if !can_confine() {
        return;
    }
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let child = Command::this_program().unwrap().args(["--exact", "none"]).confined().spawn().unwrap();
    assert_eq!(child.gaps(), Some(&[][..]));
    let child = Command::new("true").spawn().unwrap();
    assert_eq!(child.gaps(), None);
}
