//! What a recorded call asks for, in words of files and processes.
//!
//! A call that the modelled kernel has nothing like is none: its name says so. A few are read for what they tell of
//! descriptors, of where a process is, or of its mappings, and then left out all the same.

use pageferry_trace::strace::{Answer, Arg, Call};

/// A path, and where it begins if it is no absolute one.
#[derive(Clone, Debug)]
pub(super) struct At {
    pub(super) from: From,
    pub(super) path: Vec<u8>,
}

#[derive(Clone, Debug)]
pub(super) enum From {
    /// The current directory, whose path may be on the line.
    Here(Option<Vec<u8>>),
    Directory(i32),
}

/// How a file is opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct How {
    pub(super) read: bool,
    pub(super) write: bool,
    pub(super) create: bool,
    pub(super) exclusive: bool,
    pub(super) truncate: bool,
    pub(super) append: bool,
    pub(super) directory: bool,
    /// A symbolic link at the end of the path is followed.
    pub(super) follows: bool,
    /// Only as a place in the tree (`O_PATH`).
    pub(super) place: bool,
    /// A file without a name, in the directory that the path leads to (`O_TMPFILE`).
    pub(super) unnamed: bool,
}

/// What a `stat` has told.
#[derive(Clone, Copy, Debug)]
pub(super) struct StatResult {
    pub(super) is_directory: bool,
    /// Of a regular file.
    pub(super) size_bytes: Option<u64>,
    /// Of a symbolic link, the length of its path.
    pub(super) link_bytes: Option<u64>,
}

impl StatResult {
    /// A directory is there.
    pub(super) const DIRECTORY: StatResult =
        StatResult { is_directory: true, size_bytes: None, link_bytes: None };
}

/// A call that can be made again, with its arguments.
#[derive(Clone, Debug)]
pub(super) enum Request {
    Open {
        at: At,
        how: How,
        closes_on_exec: bool,
    },
    Close {
        fd: i32,
    },
    /// All descriptors from one to another go, or will at an exec.
    CloseRange {
        first: i32,
        last: i32,
        at_exec: bool,
    },
    Duplicate {
        fd: i32,
        closes_on_exec: bool,
    },
    CloseOnExec {
        fd: i32,
        on: bool,
    },
    /// Flags of a descriptor or of an open file are asked for, or set.
    Flags {
        fd: i32,
    },
    Pipe {
        ends: [i32; 2],
        closes_on_exec: bool,
    },
    Read {
        fd: i32,
        count: u64,
        offset: Option<u64>,
    },
    Write {
        fd: i32,
        count: u64,
        offset: Option<u64>,
    },
    Seek {
        fd: i32,
        to_end: bool,
        /// Where that is, where the call does not answer it.
        to: Option<u64>,
    },
    Truncate {
        fd: i32,
        size: u64,
    },
    Sync {
        fd: i32,
    },
    Unlink {
        at: At,
    },
    RemoveDirectory {
        at: At,
    },
    MakeDirectory {
        at: At,
    },
    Rename {
        from: At,
        to: At,
        /// What has the new name already may go.
        replaces: bool,
    },
    Link {
        from: At,
        to: At,
    },
    /// What is open gets a name.
    LinkOpen {
        fd: i32,
        to: At,
    },
    /// A symbolic link is made.
    Symlink {
        path: Vec<u8>,
        at: At,
    },
    /// The path of a symbolic link; as much of it as is shown.
    ReadLink {
        at: At,
        path: Option<Vec<u8>>,
    },
    /// Bytes go from one open file to another, at the offsets of both, or at others.
    Copy {
        from: (i32, Option<u64>),
        to: (i32, Option<u64>),
        count: u64,
    },
    /// A name is looked up.
    Look {
        at: At,
        told: Option<StatResult>,
        follows: bool,
    },
    Stat {
        fd: i32,
        told: Option<StatResult>,
    },
    List {
        fd: i32,
        entries: u64,
    },
    Map {
        fd: i32,
        offset: u64,
        len: u64,
        /// What is stored there is stored in the file.
        shared: bool,
    },
    /// Memory that is no file's takes the place of what was mapped there.
    MapMemory {
        len: u64,
    },
    Unmap {
        at: u64,
        len: u64,
    },
    /// A process, a thread, or a process that shares its parent's descriptors.
    Fork {
        is_thread: bool,
        shares_descriptors: bool,
    },
    Exec {
        at: At,
    },
    /// For the end of a child; for none, where the call says that none has ended, or is to be asked for again.
    Wait {
        child: Option<u32>,
    },
    Chdir {
        at: At,
    },
    ChdirTo {
        fd: i32,
    },
    /// The path of the current directory.
    Here {
        path: Vec<u8>,
    },
}

impl Request {
    /// The descriptors of files that it reads, writes or asks for what they are.
    pub(super) fn descriptors(&self) -> Vec<i32> {
        match *self {
            Request::Read { fd, .. }
            | Request::Write { fd, .. }
            | Request::Truncate { fd, .. }
            | Request::Stat { fd, .. }
            | Request::List { fd, .. }
            | Request::Map { fd, .. } => vec![fd],
            Request::Copy { from: (from, _), to: (to, _), .. } => vec![from, to],
            _ => Vec::new(),
        }
    }

    /// The descriptors of which it takes what is behind them as soon as it begins.
    pub(super) fn begins_with(&mut self) -> Vec<&mut i32> {
        match self {
            Request::Read { fd, .. }
            | Request::Write { fd, .. }
            | Request::Seek { fd, .. }
            | Request::Truncate { fd, .. }
            | Request::Sync { fd }
            | Request::Stat { fd, .. }
            | Request::List { fd, .. }
            | Request::Map { fd, .. }
            | Request::Duplicate { fd, .. }
            | Request::Flags { fd }
            | Request::ChdirTo { fd } => vec![fd],
            Request::Copy { from: (from, _), to: (to, _), .. } => vec![from, to],
            Request::LinkOpen { fd, to } => [fd].into_iter().chain(to.directory()).collect(),
            Request::Rename { from, to, .. } | Request::Link { from, to } => {
                from.directory().into_iter().chain(to.directory()).collect()
            }
            Request::Open { at, .. }
            | Request::Unlink { at }
            | Request::RemoveDirectory { at }
            | Request::MakeDirectory { at }
            | Request::Symlink { at, .. }
            | Request::ReadLink { at, .. }
            | Request::Look { at, .. }
            | Request::Exec { at }
            | Request::Chdir { at } => at.directory().into_iter().collect(),
            Request::Close { .. }
            | Request::CloseRange { .. }
            | Request::CloseOnExec { .. }
            | Request::Pipe { .. }
            | Request::MapMemory { .. }
            | Request::Unmap { .. }
            | Request::Fork { .. }
            | Request::Wait { .. }
            | Request::Here { .. } => Vec::new(),
        }
    }
}

impl At {
    /// The descriptor of the directory that it begins at.
    fn directory(&mut self) -> Option<&mut i32> {
        match &mut self.from {
            From::Directory(fd) => Some(fd),
            From::Here(_) => None,
        }
    }
}

fn number(args: &[Arg], index: usize) -> Option<i64> {
    args.get(index)?.number()
}

fn fd(args: &[Arg], index: usize) -> Option<i32> {
    i32::try_from(number(args, index)?).ok()
}

fn length(args: &[Arg], index: usize) -> Option<u64> {
    u64::try_from(number(args, index)?).ok()
}

/// The path in argument `index`, from the current directory.
fn here(args: &[Arg], index: usize) -> Option<At> {
    Some(At { from: From::Here(None), path: args.get(index)?.text()?.bytes })
}

/// The directory in argument `index`, and the path behind it.
fn at(args: &[Arg], index: usize) -> Option<At> {
    let directory = args.get(index)?;
    let from = if directory.is("AT_FDCWD", -100) || directory.0.starts_with("AT_FDCWD<") {
        From::Here(directory.note())
    } else {
        From::Directory(i32::try_from(directory.number()?).ok()?)
    };
    Some(At { from, path: args.get(index + 1)?.text()?.bytes })
}

fn how(flags: &Arg) -> How {
    let both = flags.is_set("O_RDWR", 2);
    let only = flags.is_set("O_WRONLY", 1);
    let unnamed = flags.is_set("O_TMPFILE", 0o20_000_000);
    let (create, exclusive) = (flags.is_set("O_CREAT", 0o100), flags.is_set("O_EXCL", 0o200));
    How {
        read: both || !only,
        write: both || only,
        create,
        exclusive,
        truncate: flags.is_set("O_TRUNC", 0o1000),
        append: flags.is_set("O_APPEND", 0o2000),
        directory: unnamed || flags.is_set("O_DIRECTORY", 0o200_000),
        follows: !(flags.is_set("O_NOFOLLOW", 0o400_000) || create && exclusive),
        place: flags.is_set("O_PATH", 0o10_000_000),
        unnamed,
    }
}

fn told(stat: Option<&Arg>) -> Option<StatResult> {
    let stat = stat?;
    let mode = stat.field("st_mode").or_else(|| stat.field("stx_mode"))?;
    let size = stat.field("st_size").or_else(|| stat.field("stx_size"));
    let size = size.and_then(|size| u64::try_from(size.number()?).ok());
    let is = |word, of: i64| mode.has(word) || mode.number().is_some_and(|mode| mode & 0o170_000 == of);
    Some(StatResult {
        is_directory: is("S_IFDIR", 0o040_000),
        size_bytes: size.filter(|_| is("S_IFREG", 0o100_000)),
        link_bytes: size.filter(|_| is("S_IFLNK", 0o120_000)),
    })
}

/// The descriptor that `linkat` is given a name for: by itself, or by its path in `/proc`.
fn open_of_link(from: &At, flags: &Arg) -> Option<i32> {
    match from.from {
        From::Directory(fd) if from.path.is_empty() && flags.is_set("AT_EMPTY_PATH", 0x1000) => Some(fd),
        _ if flags.is_set("AT_SYMLINK_FOLLOW", 0x400) => {
            let fd = from.path.strip_prefix(b"/proc/self/fd/".as_slice());
            let fd = fd.or_else(|| from.path.strip_prefix(b"/dev/fd/".as_slice()))?;
            std::str::from_utf8(fd).ok()?.parse().ok()
        }
        _ => None,
    }
}

/// An offset that a call is given the address of: none, `[5]`, or `[5] => [9]`.
fn offset(arg: &Arg) -> Option<Option<u64>> {
    if arg.0 == "NULL" {
        return Some(None);
    }
    let (before, _) = arg.0.strip_prefix('[')?.split_once(']')?;
    Some(Some(before.parse().ok()?))
}

/// A `stat` behind a directory and a path: of the descriptor itself, where the path is empty.
fn stat_at(args: &[Arg], stat: usize, flags: usize) -> Option<Request> {
    let (mut at, told) = (at(args, 0)?, told(args.get(stat)));
    let flags = args.get(flags)?;
    let follows = !flags.is_set("AT_SYMLINK_NOFOLLOW", 0x100);
    if at.path.is_empty() && flags.is_set("AT_EMPTY_PATH", 0x1000) && matches!(at.from, From::Here(_)) {
        at.path = b".".to_vec();
    }
    match at.from {
        From::Directory(fd) if at.path.is_empty() => Some(Request::Stat { fd, told }),
        _ => Some(Request::Look { at, told, follows }),
    }
}

/// The child that a call has waited for, where it says so.
fn waited(call: &Call) -> Request {
    let args = &call.args[..];
    let child = match (call.name.as_str(), &call.answer) {
        ("waitid", _) => match args.get(2) {
            Some(told) if told.0.starts_with('{') => told.field("si_pid").and_then(|pid| pid.pid()),
            // What happened is not told: it did to the process that was asked for.
            _ => args.first().filter(|kind| kind.is("P_PID", 1)).and_then(|_| args.get(1)?.pid()),
        },
        (_, Answer::Value(child)) => u32::try_from(*child).ok(),
        _ => None,
    };
    // A child that stops or goes on has not ended.
    let words = ["WIFSTOPPED(s)", "WIFCONTINUED(s)", "CLD_STOPPED", "CLD_CONTINUED", "CLD_TRAPPED"];
    let stops = args.iter().any(|arg| words.iter().any(|word| arg.0.contains(word)));
    let leaves = args.iter().any(|flags| flags.has("WNOWAIT"));
    Request::Wait { child: child.filter(|child| *child > 0 && !stops && !leaves) }
}

/// What a call that makes a process says of it.
fn fork(args: &[Arg]) -> Request {
    let flags = args.iter().find_map(|arg| {
        arg.field("flags").or_else(|| arg.0.strip_prefix("flags=").map(|flags| Arg(flags.to_owned())))
    });
    let is_set = |word, bits| flags.as_ref().is_some_and(|flags| flags.is_set(word, bits));
    Request::Fork {
        is_thread: is_set("CLONE_THREAD", 0x1_0000),
        shares_descriptors: is_set("CLONE_FILES", 0x400),
    }
}

/// What a call asks for, or nothing.
pub(super) fn request(call: &Call) -> Option<Request> {
    let args = &call.args[..];
    let closes = |index: usize| args.get(index).is_some_and(|flags| flags.is_set("O_CLOEXEC", 0o2_000_000));
    let io = |count: u64, offset: Option<u64>, writes: bool| {
        let fd = fd(args, 0)?;
        Some(if writes { Request::Write { fd, count, offset } } else { Request::Read { fd, count, offset } })
    };
    // The pieces of a vector: all of their lengths together.
    let vector = || {
        let pieces = args.get(1)?.items()?;
        pieces.iter().try_fold(0u64, |sum, piece| {
            sum.checked_add(u64::try_from(piece.field("iov_len")?.number()?).ok()?)
        })
    };
    match call.name.as_str() {
        "open" => {
            let how = how(args.get(1)?);
            Some(Request::Open { at: here(args, 0)?, how, closes_on_exec: closes(1) })
        }
        "openat" => {
            let how = how(args.get(2)?);
            Some(Request::Open { at: at(args, 0)?, how, closes_on_exec: closes(2) })
        }
        "creat" => {
            let how = how(&Arg("O_WRONLY|O_CREAT|O_TRUNC".into()));
            Some(Request::Open { at: here(args, 0)?, how, closes_on_exec: false })
        }
        "close" => Some(Request::Close { fd: fd(args, 0)? }),
        "close_range" => {
            // The highest number that there is stands for all.
            let last = i32::try_from(length(args, 1)?).unwrap_or(i32::MAX);
            let at_exec = args.get(2).is_some_and(|flags| flags.is_set("CLOSE_RANGE_CLOEXEC", 4));
            Some(Request::CloseRange { first: fd(args, 0)?, last, at_exec })
        }
        "ioctl" => {
            let (fd, command) = (fd(args, 0)?, args.get(1)?);
            match () {
                () if command.is("FIOCLEX", 0x5451) => Some(Request::CloseOnExec { fd, on: true }),
                () if command.is("FIONCLEX", 0x5450) => Some(Request::CloseOnExec { fd, on: false }),
                () => None,
            }
        }
        "dup" => Some(Request::Duplicate { fd: fd(args, 0)?, closes_on_exec: false }),
        "dup2" | "dup3" => Some(Request::Duplicate { fd: fd(args, 0)?, closes_on_exec: closes(2) }),
        "fcntl" | "fcntl64" => {
            let (fd, command) = (fd(args, 0)?, args.get(1)?);
            let is = |word, value| command.is(word, value);
            match () {
                () if is("F_DUPFD", 0) => Some(Request::Duplicate { fd, closes_on_exec: false }),
                () if is("F_DUPFD_CLOEXEC", 1030) => Some(Request::Duplicate { fd, closes_on_exec: true }),
                () if is("F_SETFD", 2) => {
                    Some(Request::CloseOnExec { fd, on: args.get(2)?.is_set("FD_CLOEXEC", 1) })
                }
                () if is("F_GETFD", 1) || is("F_GETFL", 3) || is("F_SETFL", 4) => Some(Request::Flags { fd }),
                () => None,
            }
        }
        "pipe" | "pipe2" => {
            let ends = args.first()?.items()?;
            Some(Request::Pipe { ends: [fd(&ends, 0)?, fd(&ends, 1)?], closes_on_exec: closes(1) })
        }
        "read" => io(length(args, 2)?, None, false),
        "pread64" => io(length(args, 2)?, Some(length(args, 3)?), false),
        "readv" => io(vector()?, None, false),
        "write" => io(length(args, 2)?, None, true),
        "pwrite64" => io(length(args, 2)?, Some(length(args, 3)?), true),
        "writev" => io(vector()?, None, true),
        "lseek" | "_llseek" => {
            let to_end = args.last()?.is("SEEK_END", 2);
            let to = if call.name == "lseek" { None } else { Some(length(&args.get(2)?.items()?, 0)?) };
            Some(Request::Seek { fd: fd(args, 0)?, to_end, to })
        }
        "ftruncate" | "ftruncate64" => Some(Request::Truncate { fd: fd(args, 0)?, size: length(args, 1)? }),
        "fsync" | "fdatasync" => Some(Request::Sync { fd: fd(args, 0)? }),
        "unlink" => Some(Request::Unlink { at: here(args, 0)? }),
        "unlinkat" if args.get(2)?.is_set("AT_REMOVEDIR", 0x200) => {
            Some(Request::RemoveDirectory { at: at(args, 0)? })
        }
        "unlinkat" => Some(Request::Unlink { at: at(args, 0)? }),
        "rmdir" => Some(Request::RemoveDirectory { at: here(args, 0)? }),
        "mkdir" => Some(Request::MakeDirectory { at: here(args, 0)? }),
        "mkdirat" => Some(Request::MakeDirectory { at: at(args, 0)? }),
        "rename" => Some(Request::Rename { from: here(args, 0)?, to: here(args, 1)?, replaces: true }),
        "renameat" => Some(Request::Rename { from: at(args, 0)?, to: at(args, 2)?, replaces: true }),
        // An exchange of two names is something else.
        "renameat2" if !args.get(4)?.is_set("RENAME_EXCHANGE", 2) => {
            let replaces = !args.get(4)?.is_set("RENAME_NOREPLACE", 1);
            Some(Request::Rename { from: at(args, 0)?, to: at(args, 2)?, replaces })
        }
        "link" => Some(Request::Link { from: here(args, 0)?, to: here(args, 1)? }),
        "linkat" => {
            let (from, to) = (at(args, 0)?, at(args, 2)?);
            match args.get(4).and_then(|flags| open_of_link(&from, flags)) {
                Some(fd) => Some(Request::LinkOpen { fd, to }),
                None => Some(Request::Link { from, to }),
            }
        }
        "symlink" => Some(Request::Symlink { path: args.first()?.text()?.bytes, at: here(args, 1)? }),
        "symlinkat" => Some(Request::Symlink { path: args.first()?.text()?.bytes, at: at(args, 1)? }),
        "readlink" => {
            Some(Request::ReadLink { at: here(args, 0)?, path: args.get(1)?.text().map(|text| text.bytes) })
        }
        "readlinkat" => {
            Some(Request::ReadLink { at: at(args, 0)?, path: args.get(2)?.text().map(|text| text.bytes) })
        }
        "sendfile" | "sendfile64" => {
            let (to, from) = (fd(args, 0)?, fd(args, 1)?);
            let from = (from, offset(args.get(2)?)?);
            Some(Request::Copy { from, to: (to, None), count: length(args, 3)? })
        }
        "copy_file_range" | "splice" => {
            let from = (fd(args, 0)?, offset(args.get(1)?)?);
            let to = (fd(args, 2)?, offset(args.get(3)?)?);
            Some(Request::Copy { from, to, count: length(args, 4)? })
        }
        "access" => Some(Request::Look { at: here(args, 0)?, told: None, follows: true }),
        "faccessat" | "faccessat2" => {
            let follows = !args.get(3).is_some_and(|flags| flags.is_set("AT_SYMLINK_NOFOLLOW", 0x100));
            Some(Request::Look { at: at(args, 0)?, told: None, follows })
        }
        "stat" | "stat64" | "lstat" | "lstat64" => {
            let follows = call.name.starts_with("stat");
            Some(Request::Look { at: here(args, 0)?, told: told(args.get(1)), follows })
        }
        "newfstatat" | "fstatat64" => stat_at(args, 2, 3),
        "statx" => stat_at(args, 4, 2),
        "fstat" | "fstat64" => Some(Request::Stat { fd: fd(args, 0)?, told: told(args.get(1)) }),
        "getdents" | "getdents64" => {
            let list = args.get(1)?;
            let entries = list.remark().or_else(|| Some(list.items()?.len() as u64))?;
            Some(Request::List { fd: fd(args, 0)?, entries })
        }
        "mmap" | "mmap2" | "old_mmap" => {
            let len = length(args, 1)?;
            let flags = args.get(3)?;
            if flags.is_set("MAP_ANONYMOUS", 0x20) {
                return Some(Request::MapMemory { len });
            }
            let unit = if call.name == "mmap2" { 4096 } else { 1 };
            let offset = length(args, 5)?.checked_mul(unit)?;
            // What is shared and not written has the bytes of a private mapping, as each page is used when it is
            // mapped.
            let shared = !flags.is_set("MAP_PRIVATE", 2) && args.get(2)?.is_set("PROT_WRITE", 2);
            Some(Request::Map { fd: fd(args, 4)?, offset, len, shared })
        }
        "munmap" => Some(Request::Unmap { at: length(args, 0)?, len: length(args, 1)? }),
        "clone" | "clone3" | "fork" | "vfork" => Some(fork(args)),
        "execve" => Some(Request::Exec { at: here(args, 0)? }),
        "execveat" => Some(Request::Exec { at: at(args, 0)? }),
        "wait4" | "waitid" | "waitpid" => Some(waited(call)),
        "chdir" => Some(Request::Chdir { at: here(args, 0)? }),
        "fchdir" => Some(Request::ChdirTo { fd: fd(args, 0)? }),
        "getcwd" => match &call.answer {
            Answer::Value(_) => Some(Request::Here { path: args.first()?.text()?.bytes }),
            _ => None,
        },
        _ => None,
    }
}
