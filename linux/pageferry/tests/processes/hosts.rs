//! Hosts that lack something: one program of all verbs runs there to its end, with the right bytes, and each channel
//! says at which level.
//!
//! # How it works
//! A host is a process of its own, from which something is taken before it uses the library: by a filter of system
//! calls, by a limit, or by a namespace in which a file is missing or says something else. It runs the program at
//! each level and writes what it found, a line a finding. The same is written by a process from which nothing was
//! taken, and the two may differ by no other lines than those of the table ([`LACKS`]). Where this host cannot take
//! something away, the test says so.
//!
//! A limit that is too small is an error that names it; then it is raised, step by step, until the program runs.

use crate::again::{self, Ended, Player};
use pageferry::host::{Host, Verdict};
use pageferry::{
    Arrived, Buffer, Channel, Config, Error, HostFault, Level, Message, PassMode, Range, Receiver, Sender,
};
use pageferry_untested::untested;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::time::Duration;

const HANGS: Duration = Duration::from_secs(400);
const AT_ONCE: Duration = Duration::from_secs(120);
/// Bytes of a large message: more than a page, less than a slot.
const LEN: usize = 100_000;

fn config(level: Level) -> Config {
    let config = Config::new().slots(3).slot_bytes(2 << 20).capacity(8).inline_bytes(128);
    config.level(level).handshake_timeout(AT_ONCE)
}

fn filled(tx: &Sender, byte: u8) -> Result<Buffer, Error> {
    let mut buffer = tx.buffer_timeout(LEN, AT_ONCE)?;
    buffer.fill(byte);
    Ok(buffer)
}

fn all(bytes: &[u8], byte: u8) -> bool {
    bytes.len() == LEN && bytes.iter().all(|&b| b == byte)
}

/// Every verb that a channel at this level has, once. Wrong bytes are a panic.
fn verbs(wanted: Level, tx: &Sender, rx: &Receiver) -> Result<(), Error> {
    tx.copy(b"a few")?;
    assert_eq!(&*rx.recv_timeout(AT_ONCE)?, b"a few");
    tx.copy(&[1; LEN])?;
    let mut owned = rx.recv_timeout(AT_ONCE)?.transfer()?;
    assert!(all(&owned, 1));
    owned[0] = 2;
    drop(owned);
    for round in 3..6 {
        let lent = tx.loan(filled(tx, round)?)?;
        let mut loan = rx.recv_timeout(AT_ONCE)?;
        assert!(all(&loan, round) && all(&lent, round));
        loan.as_mut()?.fill(99);
        assert!(all(&loan, 99) && all(&lent, round), "what a receiver writes is its own");
        drop(loan);
        assert!(all(&lent.wait_timeout(AT_ONCE).map_err(|(error, _)| error)?, round));
    }
    let lent = tx.auto(filled(tx, 6)?, Arrived::Touched)?;
    assert!(all(&rx.recv_timeout(AT_ONCE)?, 6));
    drop(lent);
    if tx.level() == Level::Sealed {
        let lent = tx.loan(filled(tx, 7)?)?;
        let _again = tx.resend(&lent)?;
        let loans = [rx.recv_timeout(AT_ONCE)?, rx.recv_timeout(AT_ONCE)?];
        assert!(loans.iter().all(|loan| all(loan, 7)));
        return Ok(());
    }
    if matches!(tx.level(), Level::Typed | Level::Mmu) {
        let ranges = vec![Range::Memory(filled(tx, 8)?), Range::Hole(4096), Range::Memory(filled(tx, 9)?)];
        let passing = tx.pass(ranges, PassMode::Copy)?;
        let Message::Passed(passed) = rx.recv_message()? else { panic!("not ranges") };
        assert!(passed.ranges().zip([8, 9]).all(|((_, bytes), byte)| all(bytes, byte)));
        drop(passed);
        drop(passing.wait()?);
    }
    // Where leases were offered, nothing is donated or shared, also where they were not accepted.
    if wanted == Level::Leased {
        return Ok(());
    }
    tx.donate(filled(tx, 10)?)?;
    let mut gift = rx.recv_timeout(AT_ONCE)?;
    assert!(all(&gift, 10));
    gift.as_mut()?.fill(11);
    drop(gift);
    match tx.donate_zero(filled(tx, 12)?) {
        Ok(zeroed) => {
            assert!(all(&zeroed, 0) && all(&rx.recv_timeout(AT_ONCE)?, 12));
        }
        Err(Error::Host(HostFault::Unsupported { .. })) => (),
        Err(error) => return Err(error),
    }
    let mut sharing = tx.share(filled(tx, 13)?)?;
    let Message::Shared(shared) = rx.recv_message()? else { panic!("not shared") };
    sharing.fill(14);
    let mut bytes = vec![0; LEN];
    shared.read_at(0, &mut bytes)?;
    assert!(all(&bytes, 14));
    drop(shared);
    sharing.wait().map(drop)
}

/// The program at a level, and at which level the channel says that it has run.
fn program(level: Level) -> Result<(Level, bool), Error> {
    let (tx, rx) = Channel::pair(config(level))?;
    assert_eq!(tx.level(), rx.level(), "both sides say the same");
    let ran = verbs(level, &tx, &rx);
    // Nothing hangs on what has failed.
    while let Ok(message) = rx.try_recv() {
        drop(message);
    }
    if ran.is_ok() {
        let (sent, received) = (tx.counters(), rx.counters());
        assert_eq!((sent.out, sent.slots_taken), (0, 0));
        assert_eq!((received.slots_held, received.bytes_held, received.retired), (0, 0, 0));
    }
    ran.map(|()| (tx.level(), tx.huge_pages()))
}

/// Descriptors of this process, also where /proc is missing; the lowest number that is free.
fn descriptors() -> (usize, u64) {
    // SAFETY: looks at numbers.
    let open: Vec<_> = (0..2000).filter(|&fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } != -1).collect();
    let free =
        (0..).zip(&open).find(|(number, fd)| *number != **fd).map_or(open.len() as i32, |(free, _)| free);
    (open.len(), free as u64)
}

/// A host: `input` is what it lacks.
pub fn host(input: &str) {
    if let Some((_, take, _)) = LACKS.iter().find(|(name, _, _)| *name == input) {
        match take {
            Take::Here(take) if !take() => return println!("{NOT_HERE}"),
            _ => (),
        }
    }
    let found = |level| match program(level) {
        Ok((ran, huge)) => format!("{ran}, {} pages", if huge { "huge" } else { "small" }),
        Err(error) => format!("no channel: {error}"),
    };
    for level in Level::ALL {
        println!("\nlevel {level} = {}", found(level));
    }
    let before = descriptors();
    for level in Level::ALL {
        found(level);
    }
    assert_eq!(descriptors(), before, "descriptors are left");
    let tried =
        ["memfd", "huge pages", "freeze", "alias", "FUTURE_WRITE", "DONTNEED", "seals", "/proc", "leases"];
    let tried = tried.into_iter().chain(["PAGEMAP_SCAN", "SO_PEERPIDFD", "Landlock", "overcommit"]);
    let items = Host::get().items();
    for name in tried {
        let item = items.iter().find(|item| item.name == name).expect("doctor has that item");
        let hinders = item.verdict == Verdict::Hinders;
        assert!(!hinders || item.change.is_some(), "it says what would change it");
        println!("{name} = {}", if hinders { item.effect } else { "good" });
    }
}

/// How something is taken from a process.
enum Take {
    /// In the process itself, before it uses the library. Whether this host can do it.
    Here(fn() -> bool),
    /// Between `fork` and `exec`, in a namespace of its own. It is given a file that says 2.
    Before(fn(&CStr) -> std::io::Result<()>),
}

const NOT_HERE: &str = "it cannot be taken away here";

/// What a host may lack, and the lines that differ there: the rest is as on the host of this test.
type Lack = (&'static str, Take, &'static [(&'static str, &'static str)]);

const NO_CHANNEL: &str = "no channel: this host: F_ADD_SEALS: Invalid argument (os error 22) (the kernel lacks a seal: \
                          F_SEAL_FUTURE_WRITE came with Linux 5.1)";
const SMALL: &str = "pools are mapped by small pages: what is refilled is cheaper copied than lent";
const UNSCANNED: &str = "views that were made writable are thrown away unseen, and their pages not counted";
const NO_LEASES: &str = "no level leased: channels copy in its place";

const LACKS: &[Lack] = &[
    ("nothing", Take::Here(|| true), &[]),
    (
        "huge pages",
        Take::Here(|| {
            // SAFETY: plain numbers.
            unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) == 0 }
        }),
        &[
            ("level copy", "copy, small pages"),
            ("level typed", "typed, small pages"),
            ("level mmu", "mmu, small pages"),
            ("level leased", "leased, small pages"),
            ("level sealed", "sealed, small pages"),
            ("huge pages", SMALL),
        ],
    ),
    (
        "MADV_COLLAPSE",
        Take::Here(|| refuse(libc::EINVAL, &[(libc::SYS_madvise, &[(2, Is::Equal(25))])])),
        &[
            ("level copy", "copy, small pages"),
            ("level typed", "typed, small pages"),
            ("level mmu", "mmu, small pages"),
            ("level leased", "leased, small pages"),
            ("level sealed", "sealed, small pages"),
            ("huge pages", SMALL),
        ],
    ),
    (
        "PAGEMAP_SCAN",
        Take::Here(|| refuse(libc::ENOTTY, &[(libc::SYS_ioctl, &[(1, Is::Equal(0xc060_6610))])])),
        &[("PAGEMAP_SCAN", UNSCANNED)],
    ),
    (
        "/proc",
        Take::Before(|_| {
            namespace()?;
            // SAFETY: the strings end with zeros.
            checked(unsafe {
                libc::mount(c"none".as_ptr(), c"/proc".as_ptr(), c"tmpfs".as_ptr(), 0, core::ptr::null())
            })
        }),
        &[
            ("level copy", "copy, small pages"),
            ("level typed", "typed, small pages"),
            ("level mmu", "mmu, small pages"),
            ("level leased", "copy, small pages"),
            ("level sealed", "sealed, small pages"),
            ("huge pages", SMALL),
            ("/proc", "a receiver keeps the descriptor that came, under the seal FUTURE_WRITE; no leases"),
            ("leases", NO_LEASES),
            ("PAGEMAP_SCAN", UNSCANNED),
        ],
    ),
    (
        "FUTURE_WRITE",
        Take::Here(|| {
            let future_write = libc::F_SEAL_FUTURE_WRITE as u64;
            let seals = (1, Is::Equal(libc::F_ADD_SEALS as u64));
            refuse(libc::EINVAL, &[(libc::SYS_fcntl, &[seals, (2, Is::Set(future_write))])])
        }),
        &[
            ("level copy", NO_CHANNEL),
            ("level typed", NO_CHANNEL),
            ("level mmu", NO_CHANNEL),
            ("level leased", NO_CHANNEL),
            ("level sealed", NO_CHANNEL),
            ("FUTURE_WRITE", "no channel can be made"),
            // Their trials are under that seal.
            (
                "alias",
                "no zero memory is left in the place of a donation, and lent memory is not copied on write",
            ),
            ("freeze", "channels have level sealed or copy"),
        ],
    ),
    (
        "NOEXEC_SEAL",
        Take::Here(|| refuse(libc::EINVAL, &[(libc::SYS_memfd_create, &[(1, Is::Set(8))])])),
        &[],
    ),
    (
        "leases",
        Take::Here(|| refuse(libc::EINVAL, &[(libc::SYS_fcntl, &[(1, Is::Equal(1024))])])),
        &[("level leased", "copy, huge pages"), ("leases", NO_LEASES)],
    ),
    (
        "locked memory",
        Take::Here(|| {
            limit(Resource::Memlock, 0);
            true
        }),
        &[],
    ),
    (
        "overcommit",
        Take::Before(|two| {
            namespace()?;
            let (from, to) = (two.as_ptr(), c"/proc/sys/vm/overcommit_memory".as_ptr());
            // SAFETY: the strings end with zeros.
            checked(unsafe { libc::mount(from, to, core::ptr::null(), libc::MS_BIND, core::ptr::null()) })
        }),
        &[
            ("level leased", "copy, huge pages"),
            (
                "overcommit",
                "every writable private view counts: views are read-only until they are written to",
            ),
        ],
    ),
    ("what Docker refuses", Take::Here(docker), &[]),
    (
        "a user of its own",
        Take::Before(|_| {
            // SAFETY: plain numbers.
            checked(unsafe { libc::unshare(libc::CLONE_NEWUSER) })
        }),
        &[],
    ),
];

fn checked(answer: libc::c_int) -> std::io::Result<()> {
    if answer == -1 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

/// Mounts of this process are its own; also without a privilege, where user namespaces are allowed.
fn namespace() -> std::io::Result<()> {
    let flags = libc::MS_REC | libc::MS_PRIVATE;
    // SAFETY: plain numbers, and strings that end with zeros.
    unsafe {
        checked(libc::unshare(libc::CLONE_NEWNS))
            .or_else(|_| checked(libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS)))?;
        checked(libc::mount(core::ptr::null(), c"/".as_ptr(), core::ptr::null(), flags, core::ptr::null()))
    }
}

fn limit(resource: Resource, bytes: u64) {
    let maximum = getrlimit(resource).maximum;
    setrlimit(resource, Rlimit { current: Some(bytes), maximum }).unwrap();
}

/// What an argument of a call is.
#[derive(Clone, Copy)]
enum Is {
    Equal(u64),
    /// It has these bits.
    Set(u64),
}

/// From now on the kernel refuses calls in this thread and those that it starts, where it has such filters.
fn refuse(errno: i32, calls: &[(libc::c_long, &[(u8, Is)])]) -> bool {
    let rules: BTreeMap<i64, Vec<SeccompRule>> = calls
        .iter()
        .map(|&(call, arguments)| {
            let conditions: Vec<_> = arguments
                .iter()
                .map(|&(argument, is)| {
                    let (op, value) = match is {
                        Is::Equal(value) => (SeccompCmpOp::Eq, value),
                        Is::Set(bits) => (SeccompCmpOp::MaskedEq(bits), bits),
                    };
                    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, op, value).unwrap()
                })
                .collect();
            let rules =
                if conditions.is_empty() { vec![] } else { vec![SeccompRule::new(conditions).unwrap()] };
            (call, rules)
        })
        .collect();
    let refused = SeccompAction::Errno(errno as u32);
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, arch).unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    seccompiler::apply_filter(&program).is_ok()
}

/// What the default profile refuses to a container without privileges, as far as a library could use it.
fn docker() -> bool {
    let calls = [
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
        libc::SYS_userfaultfd,
        libc::SYS_pidfd_getfd,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_process_madvise,
        libc::SYS_kcmp,
        libc::SYS_ptrace,
        libc::SYS_bpf,
        libc::SYS_perf_event_open,
        libc::SYS_unshare,
        libc::SYS_setns,
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_move_mount,
        libc::SYS_fsopen,
        libc::SYS_mbind,
        libc::SYS_set_mempolicy,
        libc::SYS_get_mempolicy,
        libc::SYS_move_pages,
        libc::SYS_migrate_pages,
        libc::SYS_open_by_handle_at,
        libc::SYS_keyctl,
        libc::SYS_add_key,
        libc::SYS_request_key,
        libc::SYS_personality,
        libc::SYS_vmsplice,
        libc::SYS_fanotify_init,
    ];
    refuse(libc::EPERM, &calls.map(|call| (call, &[][..])))
        && refuse(libc::ENOSYS, &[(libc::SYS_clone3, &[])])
}

/// What a host has found; `None`: this host cannot take that away.
fn findings(lack: &Lack) -> Option<BTreeMap<String, String>> {
    let (name, take, _) = lack;
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    again::prepare(&mut command, "host", name);
    let mut two = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut two, b"2\n").unwrap();
    if let Take::Before(take) = *take {
        let path = CString::new(two.path().as_os_str().as_bytes()).unwrap();
        // SAFETY: only calls of the kernel are made between fork and exec.
        unsafe { command.pre_exec(move || take(&path)) };
    }
    let player = match Player::try_start(command) {
        Ok(player) => player,
        Err(error) => {
            untested(format_args!("a host without {name}"), error);
            return None;
        }
    };
    let output = match player.end(HANGS) {
        Ended::Through(output) => output,
        other => panic!("without {name}: {other:?}"),
    };
    if output.contains(NOT_HERE) {
        untested(format_args!("a host without {name}"), NOT_HERE);
        return None;
    }
    let lines = output.lines().filter_map(|line| line.split_once(" = "));
    Some(lines.map(|(what, found)| (what.to_owned(), found.to_owned())).collect())
}

fn lacks(name: &str) {
    let whole = findings(&LACKS[0]).expect("nothing is to be taken away");
    assert!(whole.len() > 15, "{whole:?}");
    let lack = LACKS.iter().find(|(of, _, _)| *of == name).expect("the table has it");
    let Some(found) = findings(lack) else { return };
    println!("without {name}: {found:#?}");
    // This host may lack as much itself.
    let huge = whole["huge pages"] == "good";
    let mut expected = whole.clone();
    for &(what, differs) in lack.2 {
        let differs = if huge { differs.to_owned() } else { differs.replace("huge pages", "small pages") };
        let level = what.strip_prefix("level ").filter(|_| !differs.starts_with("no channel"));
        // What this host does not have, it does not have there either.
        if level.is_some_and(|level| !whole[what].starts_with(level)) {
            continue;
        }
        expected.insert(what.to_owned(), differs);
    }
    assert_eq!(found, expected, "without {name}");
}

macro_rules! hosts {
    ($($test:ident: $name:literal;)+) => {
        $(
            #[test]
            fn $test() {
                lacks($name);
            }
        )+
    };
}

hosts! {
    without_huge_pages: "huge pages";
    without_collapse: "MADV_COLLAPSE";
    without_counts_of_written_pages: "PAGEMAP_SCAN";
    without_proc: "/proc";
    without_the_seal_of_pools: "FUTURE_WRITE";
    without_the_seal_against_exec: "NOEXEC_SEAL";
    without_leases: "leases";
    without_locked_memory: "locked memory";
    without_overcommit: "overcommit";
    with_what_docker_allows: "what Docker refuses";
    with_a_user_of_its_own: "a user of its own";
}

/// All levels, where this host has them, until one fails.
fn everything() -> Result<(), Error> {
    Level::ALL.into_iter().try_for_each(|level| program(level).map(drop))
}

/// Runs the program under a limit, from a small one upward; errors must name it. Whether it ever failed, and ran.
fn raise(resource: Resource, limits: impl Iterator<Item = u64>, names: &[&str]) -> (u32, u32) {
    let whole = getrlimit(resource);
    let before = descriptors();
    let (mut failed, mut ran) = (0, 0);
    for bytes in limits {
        limit(resource, bytes);
        let end = everything();
        setrlimit(resource, whole).unwrap();
        println!("{bytes}: {end:?}");
        match end {
            Ok(()) => ran += 1,
            Err(error) => {
                let text = error.to_string();
                assert!(names.iter().any(|name| text.contains(name)), "{bytes}: {text}");
                failed += 1;
            }
        }
        assert_eq!(descriptors(), before, "descriptors are left after {bytes}");
        if ran == 3 {
            break;
        }
    }
    everything().unwrap();
    (failed, ran)
}

/// What a line of /proc/self/status says, in bytes.
fn status(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// Whether memory is refused beyond this limit: emulators of Linux do not all count it.
fn is_kept(resource: Resource, now: u64) -> bool {
    let whole = getrlimit(resource);
    limit(resource, now);
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: the kernel chooses addresses at which nothing is mapped. What it maps all the same stays unused.
    let at = unsafe { libc::mmap(core::ptr::null_mut(), 64 << 20, prot, flags, -1, 0) };
    setrlimit(resource, whole).unwrap();
    if at != libc::MAP_FAILED {
        untested(format_args!("what happens beyond {resource:?}"), "it is not counted");
    }
    at == libc::MAP_FAILED
}

/// A process whose limits are small; `input`: which.
pub fn limits(input: &str) {
    // What is made once in a process is made.
    everything().unwrap();
    let (failed, ran) = match input {
        "descriptors" => {
            let from = descriptors().1;
            raise(Resource::Nofile, from..from + 60, &["ulimit -n"])
        }
        "files" => {
            let sizes = [0, 1 << 12, 1 << 20, 6 << 20, 7 << 20, 1 << 30];
            raise(Resource::Fsize, sizes.into_iter(), &["ulimit -f"])
        }
        "addresses" => {
            let from = status("VmSize:");
            if !is_kept(Resource::As, from) {
                return;
            }
            raise(Resource::As, (1..60).map(|step| from + step * (2 << 20)), &["ulimit -v"])
        }
        "data" => {
            // As a host that does not overcommit counts it: private memory that may be written.
            let from = status("VmData:");
            if !is_kept(Resource::Data, from) {
                return;
            }
            raise(Resource::Data, (1..60).map(|step| from + step * (1 << 20)), &["overcommit"])
        }
        _ => panic!("there is no limit {input}"),
    };
    assert!(failed > 0 && ran > 0, "{failed} failed, {ran} ran");
}

/// A process that is at its limit of descriptors when it uses the library first.
pub fn late(_: &str) {
    let from = descriptors().1;
    for more in 0..4 {
        limit(Resource::Nofile, from + more);
        let error = program(Level::Mmu).unwrap_err();
        assert!(error.to_string().contains("ulimit -n"), "{error}");
    }
    limit(Resource::Nofile, 1000);
    // What was found missing then stays so: the channel says to what it falls back.
    for level in Level::ALL {
        let (ran, _) = program(level).unwrap();
        assert!(ran == level || ran == Level::Copy);
    }
}

#[test]
fn few_descriptors() {
    again::run("limits", "descriptors", HANGS).through();
    again::run("late", "", HANGS).through();
}

#[test]
fn small_files() {
    again::run("limits", "files", HANGS).through();
}

#[test]
fn few_addresses() {
    again::run("limits", "addresses", HANGS).through();
}

#[test]
fn little_private_memory() {
    again::run("limits", "data", HANGS).through();
}
