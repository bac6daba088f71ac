//! Programs that are started so that they can write to no memory of the process that starts them.
//!
//! # What it holds
//! [`Confined`], a command with what its program may read. What each part of the confinement is for, says
//! `sys::confine`; here is decided which files the program needs to run at all.
//!
//! # What can fail
//! A host without Landlock, filters or `close_range` is an error, unless the caller takes what there is.

use super::gap::Gap;
use super::spawn::{Child, Command};
use crate::error::{Error, HostFault, Usage};
use crate::sys::confine::{Cage, Filters};
use crate::sys::{Errno, Failed};
use crate::trust::{Guarded, Trust};
use landlock::{
    ABI, Access as _, AccessFs, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset, RulesetAttr as _,
    RulesetCreated, RulesetCreatedAttr as _, Scope,
};
use std::ffi::OsStr;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// A program that is to be confined.
///
/// Without it a program of the same user can write to this process's memory (`ptrace`, `/proc/PID/mem`,
/// `process_vm_writev`; where Yama's `ptrace_scope` is 1, its parent can), so that no level of a channel holds
/// against it. A confined program, and what it starts, can do none of that, whatever code runs in it. It needs no
/// privilege. The program
///
/// * reads and executes its own file, the system's libraries, and what [`Confined::allow_read`] names; it opens no
///   other file, and none for writing. It may read what /proc says of itself, and how the host has set huge pages.
///   Memory that it gets as a descriptor it opens as before;
/// * inherits the three standard streams and its channel to this process, and no other descriptor. That a stream is
///   no device that writes to memory by itself is up to the caller;
/// * has no capabilities, gains none by `exec`, makes sockets of the Unix domain only, and, where the kernel has
///   Landlock 6 (Linux 6.12), sends no signal to processes outside;
/// * is refused calls that let the kernel or a device write to pages that the program has lost: `io_uring`,
///   `io_setup`, files opened by O_DIRECT, `userfaultfd`, `vmsplice`, `bpf`; and `openat2` and `ptrace`. They
///   fail with ENOSYS or EPERM.
///
/// What such a program lends by leases can be believed: see [`Level::Leased`](crate::Level::Leased).
///
/// It holds for memory, and is no full sandbox: the program uses CPUs and memory as others do, and talks to whoever
/// listens in the file system or holds the other end of its sockets. A process *outside* that does the forbidden
/// things for it evades the confinement. So does a file system that pins the pages that it reads to: do not allow
/// files that lie on FUSE or 9p.
#[derive(Debug)]
pub struct Confined<T: Trust = Guarded> {
    command: Command<T>,
    read: Vec<PathBuf>,
    as_far_as_possible: bool,
}

/// Where the loader looks for libraries, and what it and this library read before anything else.
const SYSTEM: [&str; 9] = [
    "/lib",
    "/lib32",
    "/lib64",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/local/lib",
    "/etc/ld.so.cache",
    "/sys/kernel/mm/transparent_hugepage",
];

impl<T: Trust> Command<T> {
    /// The program can write to no memory of this process, and opens no file but what it is allowed to read. See
    /// [`Confined`].
    pub fn confined(self) -> Confined<T> {
        Confined { command: self, read: Vec::new(), as_far_as_possible: false }
    }
}

impl<T: Trust> Confined<T> {
    /// The program may read and execute the file, or what is below the folder.
    #[must_use]
    pub fn allow_read(mut self, path: impl AsRef<Path>) -> Confined<T> {
        self.read.push(path.as_ref().to_owned());
        self
    }

    /// Where this host lacks a part of the confinement, the program is started without it, and [`Child::gaps`] says
    /// which. Otherwise that is an error.
    #[must_use]
    pub fn as_far_as_possible(mut self) -> Confined<T> {
        self.as_far_as_possible = true;
        self
    }

    /// For all else: arguments, standard streams, directories, and so on.
    pub fn as_std(&mut self) -> &mut std::process::Command {
        self.command.as_std()
    }

    /// Starts the program.
    ///
    /// # Errors
    /// [`HostFault::Unsupported`] where this host lacks a part; [`Usage::Path`] where a path that was allowed does
    /// not exist; [`HostFault::Failed`] where the program cannot be run (`execve`: with EACCES it needs a file that
    /// it may not read, such as the interpreter of a script).
    pub fn spawn(mut self) -> Result<Child<T>, Error> {
        let gaps = Gap::missing();
        if let Some(gap) = gaps.first()
            && !self.as_far_as_possible
        {
            let (what, setting) = gap.what();
            return Err(HostFault::Unsupported { what, setting }.into());
        }
        let filters = match gaps.contains(&Gap::Filters) {
            true => None,
            false => Some(Filters::new().map_err(|_| not_prepared("seccomp"))?),
        };
        let ruleset = if gaps.contains(&Gap::Landlock) { None } else { Some(self.ruleset()?) };
        let cage = Cage { ruleset, filters, close: !gaps.contains(&Gap::Descriptors) };
        self.command.spawn_in(Some((cage, gaps)))
    }

    /// The domain that the program will be in.
    fn ruleset(&mut self) -> Result<OwnedFd, Error> {
        let made = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(ABI::V10))
            .and_then(|ruleset| ruleset.scope(Scope::from_all(ABI::V10)))
            .and_then(Ruleset::create);
        let mut ruleset = made.map_err(|_| not_prepared("landlock_create_ruleset"))?;
        for path in &self.read {
            ruleset = allow(ruleset, path, &PathFd::new(path).map_err(|_| not_found(path))?)?;
        }
        let needed = needed(self.command.as_std());
        for path in needed.iter().map(PathBuf::as_path).chain(SYSTEM.map(Path::new)) {
            if let Ok(file) = PathFd::new(path) {
                ruleset = allow(ruleset, path, &file)?;
            }
        }
        let fd: Option<OwnedFd> = ruleset.into();
        fd.ok_or_else(|| not_prepared("landlock_create_ruleset"))
    }
}

fn allow(ruleset: RulesetCreated, path: &Path, file: &PathFd) -> Result<RulesetCreated, Error> {
    let mut access = AccessFs::Execute | AccessFs::ReadFile;
    if path.is_dir() {
        access |= AccessFs::ReadDir;
    }
    let rule = PathBeneath::new(file, access);
    ruleset.add_rule(rule).map_err(|_| not_prepared("landlock_add_rule"))
}

/// The crate's own error says no more than that the call has failed.
fn not_prepared(call: &'static str) -> Error {
    let errno = Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL);
    Failed { call, errno }.into()
}

fn not_found(path: &Path) -> Error {
    let error = std::fs::metadata(path).err();
    let errno = error.and_then(|error| Errno::from_io_error(&error)).unwrap_or(Errno::NOENT);
    Usage::Path { path: path.to_owned(), errno }.into()
}

/// The program's file, its loader, and folders of libraries that it was told of.
fn needed(command: &std::process::Command) -> Vec<PathBuf> {
    let mut needed = Vec::new();
    if let Some(program) = program(command) {
        if let Some(loader) = loader(&program) {
            // Where libraries are in no usual place, they are beside it.
            needed.extend(loader.parent().filter(|folder| *folder != Path::new("/")).map(Path::to_owned));
            needed.push(loader);
        }
        needed.push(program);
    }
    if let Some(folders) = variable(command, "LD_LIBRARY_PATH") {
        needed.extend(std::env::split_paths(&folders).filter(|folder| folder.is_absolute()));
    }
    needed
}

/// What an environment variable will be for the program.
fn variable(command: &std::process::Command, name: &str) -> Option<std::ffi::OsString> {
    match command.get_envs().find(|(key, _)| *key == name) {
        Some((_, value)) => value.map(OsStr::to_owned),
        None => std::env::var_os(name),
    }
}

/// The file that `exec` will find.
fn program(command: &std::process::Command) -> Option<PathBuf> {
    let program = Path::new(command.get_program());
    if program.as_os_str().as_bytes().contains(&b'/') {
        let folder = command.get_current_dir().unwrap_or(Path::new(""));
        return Some(folder.join(program));
    }
    let folders = variable(command, "PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// The loader that a program in the format ELF names, by its header PT_INTERP.
fn loader(program: &Path) -> Option<PathBuf> {
    const PT_INTERP: u32 = 3;
    let mut file = std::fs::File::open(program).ok()?;
    let mut head = [0; 64];
    file.read_exact(&mut head).ok()?;
    let number = |bytes: &[u8], at: usize| Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let short = |at: usize| Some(u16::from_ne_bytes(head.get(at..at + 2)?.try_into().ok()?));
    if head[..5] != *b"\x7fELF\x02" {
        return None;
    }
    let (table, bytes, headers) = (number(&head, 32)?, short(54)?, short(56)?);
    for header in 0..u64::from(headers) {
        let mut entry = [0; 56];
        file.read_exact_at(&mut entry, table.checked_add(header * u64::from(bytes))?).ok()?;
        if u32::from_ne_bytes(entry[..4].try_into().ok()?) == PT_INTERP {
            let mut path = vec![0; usize::try_from(number(&entry, 32)?).ok().filter(|len| *len <= 4096)?];
            file.read_exact_at(&mut path, number(&entry, 8)?).ok()?;
            path.truncate(path.iter().position(|&byte| byte == 0)?);
            return Some(PathBuf::from(std::ffi::OsString::from_vec(path)));
        }
    }
    None
}
