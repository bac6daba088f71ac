//! Recordings of processes that never were: each call does what it does at a moment between its begin and its return
//! that is drawn, on files that are modelled here once more, and strace's text shows what it would have.

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Node {
    File(usize),
    Directory,
    Link(&'static str),
}

/// Paths, and lengths of files; a file may have several names.
#[derive(Clone, Default)]
struct Files {
    names: BTreeMap<&'static str, Node>,
    sizes: Vec<u64>,
}

#[derive(Clone, Debug)]
enum Call {
    Open { path: &'static str, flags: &'static str },
    Close { fd: usize },
    Stat { path: &'static str },
    Size { fd: usize },
    ReadAt { fd: usize, at: u64, count: u64 },
    WriteAt { fd: usize, at: u64, len: u64 },
    Write { fd: usize, len: u64 },
    Truncate { fd: usize, size: u64 },
    Unlink { path: &'static str },
    MakeDirectory { path: &'static str },
    RemoveDirectory { path: &'static str },
    Rename { from: &'static str, to: &'static str },
    Link { from: &'static str, to: &'static str },
    Symlink { path: &'static str },
    ReadLink { path: &'static str },
    List,
    ListEnd,
}

/// What the descriptors of a process are: files, and whether each appends; its directory.
type Table = BTreeMap<usize, (Option<usize>, bool)>;

/// Names that stand for files, for directories and for symbolic links.
const FILES: [&str; 4] = ["/w/a", "/w/b", "/w/d/a", "/w/d/b"];
const DIRECTORIES: [&str; 2] = ["/w/d", "/w/e"];
const LINKS: [&str; 2] = ["/w/s", "/w/d/s"];

pub(crate) const NO_FILE: &str = "-1 ENOENT (No such file or directory)";
const EXISTS: &str = "-1 EEXIST (File exists)";

fn told(size: u64) -> String {
    format!("{{st_mode=S_IFREG|0644, st_size={size}, ...}}")
}

impl Files {
    fn parent_is_there(&self, path: &str) -> bool {
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        self.names.contains_key(parent)
    }

    fn file(&self, path: &str) -> Option<usize> {
        match self.names.get(path) {
            Some(Node::File(file)) => Some(*file),
            _ => None,
        }
    }

    fn add(&mut self, path: &'static str) -> usize {
        self.sizes.push(0);
        self.names.insert(path, Node::File(self.sizes.len() - 1));
        self.sizes.len() - 1
    }

    /// Does what a call does: its text before its end, and its end with the answer.
    fn make(&mut self, call: &Call, table: &mut Table, listed: &mut usize) -> (String, String) {
        let yes = |is: bool, no: &str| if is { "0".to_owned() } else { no.to_owned() };
        let free = || (3..).find(|fd| !table.contains_key(fd)).expect("one is free");
        match *call {
            Call::Open { path, flags } => {
                let (creates, excludes) = (flags.contains("CREAT"), flags.contains("EXCL"));
                let found = self.file(path);
                let answer = match found {
                    _ if !self.parent_is_there(path) => Err(NO_FILE),
                    Some(_) if creates && excludes => Err(EXISTS),
                    Some(file) => Ok(file),
                    None if creates => Ok(self.add(path)),
                    None => Err(NO_FILE),
                };
                let answer = match answer {
                    Ok(file) => {
                        if flags.contains("TRUNC") {
                            self.sizes[file] = 0;
                        }
                        let fd = free();
                        table.insert(fd, (Some(file), flags.contains("APPEND")));
                        fd.to_string()
                    }
                    Err(error) => error.to_owned(),
                };
                (format!("openat(AT_FDCWD, \"{path}\", {flags}, 0666"), format!(") = {answer}"))
            }
            Call::Close { fd } => {
                table.remove(&fd);
                (format!("close({fd}"), ") = 0".to_owned())
            }
            Call::Stat { path } => {
                let (told, answer) = match self.names.get(path) {
                    Some(Node::File(file)) => (told(self.sizes[*file]), "0"),
                    Some(Node::Directory) => ("{st_mode=S_IFDIR|0755, st_size=4096, ...}".to_owned(), "0"),
                    _ => ("0x7ffe".to_owned(), NO_FILE),
                };
                (format!("stat(\"{path}\", "), format!("{told}) = {answer}"))
            }
            Call::Size { fd } => {
                let size = table[&fd].0.map_or(0, |file| self.sizes[file]);
                (format!("fstat({fd}, "), format!("{}) = 0", told(size)))
            }
            Call::ReadAt { fd, at, count } => {
                let there = self.sizes[table[&fd].0.expect("a file")].saturating_sub(at).min(count);
                (format!("pread64({fd}, "), format!("\"\"..., {count}, {at}) = {there}"))
            }
            Call::WriteAt { fd, at, len } => {
                let size = &mut self.sizes[table[&fd].0.expect("a file")];
                *size = (*size).max(at + len);
                (format!("pwrite64({fd}, \"\"..., {len}, {at}"), format!(") = {len}"))
            }
            Call::Write { fd, len } => {
                self.sizes[table[&fd].0.expect("a file")] += len;
                (format!("write({fd}, \"\"..., {len}"), format!(") = {len}"))
            }
            Call::Truncate { fd, size } => {
                self.sizes[table[&fd].0.expect("a file")] = size;
                (format!("ftruncate({fd}, {size}"), ") = 0".to_owned())
            }
            Call::Unlink { path } => {
                let did = self.names.remove(path).is_some();
                (format!("unlink(\"{path}\""), format!(") = {}", yes(did, NO_FILE)))
            }
            Call::MakeDirectory { path } => {
                let did = !self.names.contains_key(path);
                if did {
                    self.names.insert(path, Node::Directory);
                }
                (format!("mkdir(\"{path}\", 0777"), format!(") = {}", yes(did, EXISTS)))
            }
            Call::RemoveDirectory { path } => {
                let answer = match self.names.get(path) {
                    None => NO_FILE,
                    Some(_) if self.names.keys().any(|name| name.starts_with(&format!("{path}/"))) => {
                        "-1 ENOTEMPTY (Directory not empty)"
                    }
                    Some(_) => {
                        self.names.remove(path);
                        "0"
                    }
                };
                (format!("rmdir(\"{path}\""), format!(") = {answer}"))
            }
            Call::Rename { from, to } => {
                let did = self.names.contains_key(from) && self.parent_is_there(to);
                // Two names of one file stay.
                if did && self.file(from) != self.file(to) {
                    let node = self.names.remove(from).expect("it is there");
                    self.names.insert(to, node);
                }
                (format!("rename(\"{from}\", \"{to}\""), format!(") = {}", yes(did, NO_FILE)))
            }
            Call::Link { from, to } => {
                let answer = match self.names.get(from).cloned() {
                    Some(_) if self.names.contains_key(to) => EXISTS,
                    Some(node) if self.parent_is_there(to) => {
                        self.names.insert(to, node);
                        "0"
                    }
                    _ => NO_FILE,
                };
                (format!("link(\"{from}\", \"{to}\""), format!(") = {answer}"))
            }
            Call::Symlink { path } => {
                let answer = match self.names.contains_key(path) {
                    true => EXISTS,
                    false if self.parent_is_there(path) => {
                        self.names.insert(path, Node::Link("nowhere"));
                        "0"
                    }
                    false => NO_FILE,
                };
                (format!("symlink(\"nowhere\", \"{path}\""), format!(") = {answer}"))
            }
            Call::ReadLink { path } => {
                let end = match self.names.get(path) {
                    Some(Node::Link(to)) => format!("\"{to}\", 99) = {}", to.len()),
                    _ => format!("0x7ffe, 99) = {NO_FILE}"),
                };
                (format!("readlink(\"{path}\", "), end)
            }
            Call::List => {
                let inside = |name: &&str| name.starts_with("/w/") && !name[3..].contains('/');
                *listed = self.names.keys().filter(|name| inside(name)).count() + 2;
                ("getdents64(9, ".to_owned(), format!("0x7f /* {listed} entries */, 32768) = 99"))
            }
            Call::ListEnd => ("getdents64(9, ".to_owned(), "0x7f /* 0 entries */, 32768) = 0".to_owned()),
        }
    }
}

/// A process's next call.
fn drawn(draw: &mut ChaCha8Rng, table: &Table, last: Option<&Call>) -> Call {
    fn of<T: Copy>(draw: &mut ChaCha8Rng, all: &[T]) -> T {
        all[draw.random_range(0..all.len())]
    }
    if matches!(last, Some(Call::List)) {
        return Call::ListEnd;
    }
    let open: Vec<usize> =
        table.iter().filter(|(_, (file, appends))| file.is_some() && !appends).map(|(fd, _)| *fd).collect();
    let appending: Vec<usize> =
        table.iter().filter(|(_, (_, appends))| *appends).map(|(fd, _)| *fd).collect();
    let length = |draw: &mut ChaCha8Rng| draw.random_range(1..200u64);
    match draw.random_range(0..17) {
        0 | 1 => {
            let flags = [
                "O_RDWR",
                "O_RDWR|O_CREAT|O_EXCL",
                "O_RDWR|O_CREAT|O_TRUNC",
                "O_RDWR|O_CREAT",
                "O_WRONLY|O_APPEND",
            ];
            Call::Open { path: of(draw, &FILES), flags: of(draw, &flags) }
        }
        2 => Call::Stat { path: of(draw, &DIRECTORIES) },
        3 => Call::Stat { path: of(draw, &FILES) },
        4 => Call::Unlink { path: of(draw, &FILES) },
        5 => Call::MakeDirectory { path: of(draw, &DIRECTORIES) },
        6 => Call::RemoveDirectory { path: of(draw, &DIRECTORIES) },
        7 => {
            let from = of(draw, &FILES);
            let to = of(draw, &FILES);
            if from == to { Call::Stat { path: to } } else { Call::Rename { from, to } }
        }
        8 => {
            let from = of(draw, &FILES);
            let to = of(draw, &FILES);
            if from == to { Call::Stat { path: to } } else { Call::Link { from, to } }
        }
        9 => Call::Symlink { path: of(draw, &LINKS) },
        10 => Call::ReadLink { path: of(draw, &LINKS) },
        11 => Call::Unlink { path: of(draw, &LINKS) },
        12 if !matches!(last, Some(Call::ListEnd)) => Call::List,
        13 if !appending.is_empty() => Call::Write { fd: of(draw, &appending), len: length(draw) },
        14 if open.len() > 3 => Call::Close { fd: of(draw, &open) },
        _ if open.is_empty() => Call::Stat { path: of(draw, &FILES) },
        _ => {
            let fd = of(draw, &open);
            match draw.random_range(0..5) {
                0 => Call::Size { fd },
                1 | 2 => Call::ReadAt { fd, at: length(draw) / 2, count: length(draw) },
                3 => Call::WriteAt { fd, at: length(draw), len: length(draw) },
                _ => Call::Truncate { fd, size: length(draw) },
            }
        }
    }
}

/// A process: the call that it has begun, and what that comes to once its moment was.
struct Process {
    table: Table,
    listed: usize,
    left: usize,
    begun: Option<Call>,
    came_to: Option<(String, String)>,
    last: Option<Call>,
}

/// A line that begins or ends a call, or is an end of a process.
enum Line {
    Begin(usize),
    End(usize, String, String),
}

/// The recording of two or three processes, each of which makes so many calls on what a first one has made.
pub(crate) fn recording(seed: u64, calls: usize) -> String {
    let mut draw = ChaCha8Rng::seed_from_u64(seed);
    let mut files = Files::default();
    files.names.insert("/w", Node::Directory);
    files.names.insert("/w/d", Node::Directory);
    let mut text = "1 mkdir(\"/w\", 0777) = 0\n1 mkdir(\"/w/d\", 0777) = 0\n".to_owned();
    text += "1 openat(AT_FDCWD, \"/w/a\", O_RDWR|O_CREAT|O_EXCL, 0666) = 3\n";
    let shared = files.add("/w/a");
    text += "1 openat(AT_FDCWD, \"/w\", O_RDONLY|O_DIRECTORY) = 9\n";
    let count = draw.random_range(2..4usize);
    let mut processes = Vec::new();
    for process in 0..count {
        text += &format!("1 fork() = {}\n", process + 2);
        // Each lists by a place of its own in the directory.
        text += &format!("{} openat(AT_FDCWD, \"/w\", O_RDONLY|O_DIRECTORY) = 4\n", process + 2);
        text += &format!("{0} dup2(4, 9) = 9\n{0} close(4) = 0\n", process + 2);
        let table = Table::from([(3, (Some(shared), false)), (9, (None, false))]);
        processes.push(Process { table, listed: 0, left: calls, begun: None, came_to: None, last: None });
    }
    let mut lines = Vec::new();
    loop {
        let able: Vec<usize> = (0..count)
            .filter(|process| processes[*process].left > 0 || processes[*process].begun.is_some())
            .collect();
        if able.is_empty() {
            break;
        }
        let at = able[draw.random_range(0..able.len())];
        let process = &mut processes[at];
        match (&process.begun, process.came_to.take()) {
            (None, _) => {
                process.begun = Some(drawn(&mut draw, &process.table, process.last.as_ref()));
                process.left -= 1;
                lines.push(Line::Begin(at));
            }
            (Some(call), None) => {
                process.came_to = Some(files.make(call, &mut process.table, &mut process.listed));
            }
            (Some(_), Some((head, tail))) => {
                process.last = process.begun.take();
                if matches!(process.last, Some(Call::ListEnd)) {
                    lines.push(Line::End(at, head, tail));
                    lines.push(Line::Begin(at));
                    lines.push(Line::End(at, "lseek(9, 0, SEEK_SET".to_owned(), ") = 0".to_owned()));
                } else {
                    lines.push(Line::End(at, head, tail));
                }
            }
        }
    }
    // What a call's text is, is known at its end.
    let mut begun: BTreeMap<usize, usize> = BTreeMap::new();
    let mut out: Vec<String> = Vec::new();
    for line in lines {
        match line {
            Line::Begin(process) => {
                begun.insert(process, out.len());
                out.push(String::new());
            }
            Line::End(process, head, tail) => {
                let (at, pid) = (begun[&process], process + 2);
                if at + 1 == out.len() {
                    out[at] = format!("{pid} {head}{tail}");
                } else {
                    let name = head.split('(').next().expect("a name").to_owned();
                    out[at] = format!("{pid} {head} <unfinished ...>");
                    out.push(format!("{pid} <... {name} resumed>{tail}"));
                }
            }
        }
    }
    text += &out.join("\n");
    for pid in 2..count + 2 {
        text += &format!("\n{pid} +++ exited with 0 +++\n1 wait4(-1, NULL, 0, NULL) = {pid}");
    }
    text + "\n1 +++ exited with 0 +++\n"
}
