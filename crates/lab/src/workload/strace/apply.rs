//! What each recorded call does to descriptors, names and bytes of the plain model, and what is made again of it.
//!
//! A call that failed is made again if it failed for a reason that names have (there is none, there is one already, ...); one that failed
//! otherwise, as for want of rights, is left out. Where the plain model answers something else than was recorded, that is a deviation; if
//! the one succeeds and the other fails, the call is not made.

use super::calls::{At, How, Request, Told};
use super::contents::{contents, sum};
use super::names::{Hint, MOST_BYTES, Path};
use super::ops::Action;
use super::order::Thing;
use super::plan::{Context, Mapping, NotModelled, Object, Planner, Running, Through, errno, kernel_path};
use pageferry_hal::PAGE_SIZE;
use pageferry_kernel::{Errno, OpenFlags};
use pageferry_trace::strace::Answer;
use std::collections::BTreeSet;

const PAGE: u64 = PAGE_SIZE as u64;
/// The most that a call of a recording moves or maps.
const MOST_AT_ONCE: u64 = 1 << 26;
/// The most that all calls write to files and pipes, holes counted in.
const MOST_WRITTEN: u64 = 1 << 28;

type Done = Result<(), NotModelled>;

/// How a call ended when it was recorded.
enum Ended {
    Well(i64),
    /// With an error that names have.
    With(Errno),
}

/// What the recording and the plain model say of a call.
fn ended(context: &Context<'_>) -> Result<Ended, NotModelled> {
    match &context.call.answer {
        Answer::Value(value) => Ok(Ended::Well(*value)),
        Answer::Error(name) => errno(name).map(Ended::With).ok_or_else(|| name.clone()),
        Answer::None => Err("it did not return".into()),
    }
}

/// Of a call that must have succeeded.
fn value(context: &Context<'_>) -> Result<u64, NotModelled> {
    match ended(context)? {
        Ended::Well(value) => u64::try_from(value).map_err(|_| "a negative answer".into()),
        Ended::With(_) => Err(match &context.call.answer {
            Answer::Error(name) => name.clone(),
            _ => String::new(),
        }),
    }
}

fn descriptor(context: &Context<'_>) -> Result<i32, NotModelled> {
    i32::try_from(value(context)?).map_err(|_| "no descriptor".into())
}

impl Planner {
    /// Does what a call asks for.
    ///
    /// # Errors
    /// Why it is not made again.
    pub(super) fn apply(&mut self, context: &Context<'_>, request: Request) -> Done {
        let process = context.process;
        match request {
            Request::Open { at, how, closes_on_exec } => self.open(context, &at, how, closes_on_exec),
            Request::Close { fd } => self.close(context, fd),
            Request::Duplicate { fd, closes_on_exec } => {
                let to = descriptor(context)?;
                let held = self.descriptor(process, fd).ok_or("not opened in the recording")?;
                let modelled = self.is_in_kernel(held.open);
                if to == fd {
                    return Err("to itself".into());
                }
                self.bind(context, to, held.open, closes_on_exec);
                if !modelled {
                    self.open_of(process, fd)?;
                    // A directory: the kernel has nothing open.
                    self.push(context, Action::Enter, Vec::new());
                    return Ok(());
                }
                self.push(context, Action::Duplicate { fd, to }, Vec::new());
                Ok(())
            }
            Request::CloseOnExec { fd, on } => {
                value(context)?;
                if let Some(held) = self.running[process].table.get_mut(&fd) {
                    held.closes_on_exec = on;
                }
                Err("F_SETFD".into())
            }
            Request::Pipe { ends, closes_on_exec } => {
                value(context)?;
                let pipe = self.pipes.len();
                self.pipes.push(Through::default());
                for (fd, writes) in ends.into_iter().zip([false, true]) {
                    let open = self.add_open(Object::Pipe { pipe, writes }, false);
                    self.bind(context, fd, open, closes_on_exec);
                }
                self.push(context, Action::Pipe { ends }, Vec::new());
                Ok(())
            }
            Request::Read { fd, count, offset } => self.read(context, fd, count, offset),
            Request::Write { fd, count, offset } => self.write(context, fd, count, offset),
            Request::Seek { fd, to_end } => self.seek(context, fd, to_end),
            Request::Truncate { fd, size } => {
                value(context)?;
                let open = self.open_of(process, fd)?;
                let Object::File(node) = self.opens[open].object else { return Err("not a file".into()) };
                if size > MOST_BYTES {
                    return Err("too long a file".into());
                }
                self.names.truncate(node, size);
                self.push(context, Action::Truncate { fd, size }, vec![(Thing::Bytes(node), true)]);
                Ok(())
            }
            Request::Sync { fd } => {
                value(context)?;
                let open = self.open_of(process, fd)?;
                let Object::File(node) = self.opens[open].object else { return Err("not a file".into()) };
                self.push(context, Action::Sync { fd }, vec![(Thing::Bytes(node), false)]);
                Ok(())
            }
            Request::Unlink { at } => self.change(context, &at, |s, path, did| {
                (s.names.unlink(path, did), |path, answer| Action::Unlink { path, answer })
            }),
            Request::RemoveDirectory { at } => self.change(context, &at, |s, path, did| {
                let answer = s.names.remove_directory(path, did);
                (answer, |path, answer| Action::RemoveDirectory { path, answer })
            }),
            Request::MakeDirectory { at } => {
                self.plan.made += 1;
                self.change(context, &at, |s, path, did| {
                    let answer = s.names.make_directory(path, did);
                    (answer, |path, answer| Action::MakeDirectory { path, answer })
                })
            }
            Request::Rename { from, to } => self.two_names(context, &from, &to, true),
            Request::Link { from, to } => {
                self.plan.made += 1;
                self.two_names(context, &from, &to, false)
            }
            Request::Look { at, told } => self.look(context, &at, told),
            Request::Chdir { at } => {
                let told = Some(Told { is_directory: true, size_bytes: None });
                let path = self.path(process, &at)?;
                if matches!(ended(context)?, Ended::Well(_)) {
                    self.running[process].here = path;
                }
                self.look(context, &at, told)
            }
            Request::ChdirTo { fd } => {
                value(context)?;
                let open = self.open_of(process, fd)?;
                let Object::Directory { path, .. } = &self.opens[open].object else {
                    return Err("not a directory".into());
                };
                self.running[process].here = path.clone();
                self.push(context, Action::Enter, Vec::new());
                Ok(())
            }
            Request::Here { path } => {
                if path.starts_with(b"/") {
                    let mut here = Vec::new();
                    super::plan::follow(&mut here, &path);
                    self.running[process].here = here;
                }
                Err("the current directory".into())
            }
            Request::Stat { fd, told } => self.stat(context, fd, told),
            Request::List { fd, entries } => self.list(context, fd, entries),
            Request::Map { fd, offset, len, shared } => self.map(context, fd, offset, len, shared),
            Request::MapMemory { len } => {
                let at = value(context)?;
                self.unmap(context, at, len, false);
                Err("memory".into())
            }
            Request::Unmap { at, len } => {
                value(context)?;
                if self.unmap(context, at, len, true) { Ok(()) } else { Err("memory".into()) }
            }
            Request::Fork { is_thread } => self.fork(context, is_thread),
            Request::Exec { at } => {
                let did = matches!(ended(context)?, Ended::Well(_));
                self.look(context, &at, None)?;
                if did {
                    self.exec(context);
                }
                Ok(())
            }
            Request::Wait => {
                let pid = u32::try_from(value(context)?).unwrap_or(0);
                let child = self.process_of(pid).filter(|child| self.forked.contains(child));
                let child = child.filter(|child| *child != process).ok_or("nobody's end")?;
                if !self.waited.insert(child) {
                    return Err("an end that was waited for".into());
                }
                self.push(context, Action::Wait { process: child }, Vec::new());
                let done = self.done(child);
                self.order.waited(process, (child, done));
                Ok(())
            }
        }
    }

    // ---------------------------------------------------------------------------------------------- names

    /// What a failed call tells of a path.
    fn learn(&mut self, path: &Path, failed: Errno) {
        match failed {
            Errno::NoFile => self.names.is_missing(path),
            Errno::Exists => self.tells(path, None),
            Errno::IsDirectory => self.tells(path, Some(true)),
            Errno::NotEmpty => {
                if let Ok(node) = self.names.find(path, Hint::There { is_directory: Some(true) })
                    && self.names.count(node) == 0
                    && let Some(origin) = self.names.origin(node)
                {
                    self.fillers.entry(origin.clone()).or_insert(1);
                }
            }
            Errno::NotDirectory => {
                if let Some((_, parent)) = path.split_last()
                    && !parent.is_empty()
                {
                    self.tells(&parent.to_vec(), Some(false));
                }
            }
            _ => {}
        }
    }

    /// Something is at a path.
    fn tells(&mut self, path: &Path, is_directory: Option<bool>) {
        let _ = self.names.find(path, Hint::There { is_directory });
    }

    /// What comes of a call whose answers are known: true if it is made.
    fn agrees(&mut self, context: &Context<'_>, recorded: &Ended, model: &Result<(), Errno>) -> bool {
        match (recorded, model) {
            (Ended::Well(_), Ok(())) => true,
            (Ended::With(one), Err(other)) if one == other => true,
            (Ended::With(one), Err(other)) => {
                self.deviates(context, format!("recorded: {one}, here: {other}"));
                true
            }
            (Ended::Well(_), Err(other)) => {
                self.deviates(context, format!("recorded: done, here: {other}; it is left out"));
                false
            }
            (Ended::With(one), Ok(())) => {
                self.deviates(context, format!("recorded: {one}, here: done; it is left out"));
                false
            }
        }
    }

    fn change(
        &mut self,
        context: &Context<'_>,
        at: &At,
        change: impl Fn(&mut Planner, &Path, bool) -> (Result<(), Errno>, fn(String, Result<(), Errno>) -> Action),
    ) -> Done {
        let path = self.path(context.process, at)?;
        let recorded = ended(context)?;
        let did = matches!(recorded, Ended::Well(_));
        if let Ended::With(failed) = recorded {
            self.learn(&path, failed);
        }
        let (answer, action) = change(self, &path, did);
        if self.agrees(context, &recorded, &answer) {
            self.push(context, action(kernel_path(&path), answer), Planner::at_path(&path, did));
        }
        Ok(())
    }

    fn two_names(&mut self, context: &Context<'_>, from: &At, to: &At, renames: bool) -> Done {
        let (from, to) = (self.path(context.process, from)?, self.path(context.process, to)?);
        let recorded = ended(context)?;
        let did = matches!(recorded, Ended::Well(_));
        if let Ended::With(failed) = recorded {
            match failed {
                Errno::Exists | Errno::NotEmpty | Errno::IsDirectory => self.learn(&to, failed),
                Errno::NoFile => self.names.is_missing(&from),
                _ => {}
            }
        }
        let answer =
            if renames { self.names.rename(&from, &to, did) } else { self.names.link(&from, &to, did) };
        if self.agrees(context, &recorded, &answer) {
            let mut things = Planner::at_path(&from, did && renames);
            things.extend(Planner::at_path(&to, did));
            let (from, to) = (kernel_path(&from), kernel_path(&to));
            let action =
                if renames { Action::Rename { from, to, answer } } else { Action::Link { from, to, answer } };
            self.push(context, action, things);
        }
        Ok(())
    }

    fn look(&mut self, context: &Context<'_>, at: &At, told: Option<Told>) -> Done {
        let path = self.path(context.process, at)?;
        if let Some(first) = path.first()
            && first == b"dev"
        {
            return Err("a device".into());
        }
        let recorded = ended(context)?;
        let hint = match recorded {
            Ended::Well(_) => Hint::There { is_directory: told.map(|told| told.is_directory) },
            Ended::With(failed) => {
                self.learn(&path, failed);
                Hint::Nothing
            }
        };
        let found = self.names.find(&path, hint);
        if !self.agrees(context, &recorded, &found.map(drop)) {
            return Ok(());
        }
        let mut things = Planner::at_path(&path, false);
        let answer = found.map(|node| {
            if let Some(size) = told.and_then(|told| told.size_bytes) {
                self.names.is_long(node, size);
                self.compare(context, "its length", size, self.names.size(node));
            }
            things.push((Thing::Bytes(node), false));
            (!self.names.is_directory(node)).then(|| self.names.size(node))
        });
        self.push(context, Action::Look { path: kernel_path(&path), answer }, things);
        Ok(())
    }

    fn compare(&mut self, context: &Context<'_>, of: &str, recorded: u64, here: u64) {
        if recorded != here {
            self.deviates(context, format!("{of}: {recorded} recorded, {here} here"));
        }
    }

    fn open(&mut self, context: &Context<'_>, at: &At, how: How, closes_on_exec: bool) -> Done {
        let path = self.path(context.process, at)?;
        let recorded = ended(context)?;
        if path.first().is_some_and(|name| name == b"dev") {
            return self.open_device(context, &path, closes_on_exec);
        }
        let did = matches!(recorded, Ended::Well(_));
        if let Ended::With(failed) = recorded {
            self.learn(&path, failed);
        }
        let found = if did && how.create && how.exclusive {
            self.names.make_file(&path, false)
        } else if did && how.create {
            // A directory is not opened to be made.
            match self.names.find(&path, Hint::Directories) {
                Err(Errno::NoFile) => self.names.make_file(&path, !how.truncate),
                found => found,
            }
        } else {
            let is_directory = if how.directory { Some(true) } else { None };
            self.names.find(&path, if did { Hint::There { is_directory } } else { Hint::Nothing })
        };
        let answer = match found {
            Ok(_) if !did && how.create && how.exclusive => Err(Errno::Exists),
            Ok(node) if !did && self.names.is_directory(node) && how.write => Err(Errno::IsDirectory),
            Ok(node) if how.directory && !self.names.is_directory(node) => Err(Errno::NotDirectory),
            found => found,
        };
        if !self.agrees(context, &recorded, &answer.map(drop)) {
            if did {
                let open = self.add_open(Object::Other("of a call that was left out"), false);
                self.bind(context, descriptor(context)?, open, closes_on_exec);
            }
            return Ok(());
        }
        let makes = did && how.create;
        self.plan.made += u64::from(makes);
        let mut things = Planner::at_path(&path, makes);
        let Ok(node) = answer else {
            let path = kernel_path(&path);
            // What is opened as a directory, the kernel looks up.
            let action = if how.directory {
                Action::Look { path, answer: answer.map(|_| None) }
            } else {
                Action::Open { path, flags: flags(how), fd: -1, answer: answer.map(drop) }
            };
            self.push(context, action, things);
            return Ok(());
        };
        let fd = descriptor(context)?;
        if self.names.is_directory(node) {
            let object = Object::Directory { path: path.clone(), node, listed: 0, there: None };
            let open = self.add_open(object, false);
            self.bind(context, fd, open, closes_on_exec);
            self.push(context, Action::Look { path: kernel_path(&path), answer: Ok(None) }, things);
            return Ok(());
        }
        if how.truncate && how.write {
            self.names.truncate(node, 0);
        }
        let truncates = how.truncate && how.write;
        things.push((Thing::Bytes(node), truncates));
        let open = self.add_open(Object::File(node), how.append);
        self.bind(context, fd, open, closes_on_exec);
        let action = Action::Open { path: kernel_path(&path), flags: flags(how), fd, answer: Ok(()) };
        self.push(context, action, things);
        Ok(())
    }

    fn open_device(&mut self, context: &Context<'_>, path: &Path, closes_on_exec: bool) -> Done {
        let fd = descriptor(context)?;
        let is_null = path.len() == 2 && path[1] == b"null";
        let object = if is_null { Object::Null } else { Object::Other("a device") };
        let open = self.add_open(object, false);
        self.bind(context, fd, open, closes_on_exec);
        if !is_null {
            return Err("a device".into());
        }
        let flags = OpenFlags::READ | OpenFlags::WRITE;
        self.push(context, Action::Open { path: "/dev/null".into(), flags, fd, answer: Ok(()) }, Vec::new());
        Ok(())
    }

    // ---------------------------------------------------------------------------------------------- open files

    fn close(&mut self, context: &Context<'_>, fd: i32) -> Done {
        value(context)?;
        let open = match self.open_of(context.process, fd) {
            Ok(open) => open,
            Err(why) => {
                self.running[context.process].table.remove(&fd);
                return Err(why);
            }
        };
        self.running[context.process].table.remove(&fd);
        let action = if self.is_in_kernel(open) { Action::Close { fd } } else { Action::Enter };
        self.push(context, action, Vec::new());
        Ok(())
    }

    fn stat(&mut self, context: &Context<'_>, fd: i32, told: Option<Told>) -> Done {
        value(context)?;
        let open = self.open_of(context.process, fd)?;
        match &self.opens[open].object {
            Object::File(node) => {
                let node = *node;
                if told.is_some_and(|told| told.is_directory) {
                    self.turns_out_directory(open, node);
                }
                if self.names.is_directory(node) {
                    self.push(context, Action::Enter, Vec::new());
                    return Ok(());
                }
                if let Some(size) = told.and_then(|told| told.size_bytes) {
                    self.names.is_long(node, size);
                    self.compare(context, "its length", size, self.names.size(node));
                }
                let answer = self.names.size(node);
                self.push(context, Action::Size { fd, answer }, vec![(Thing::Bytes(node), false)]);
                Ok(())
            }
            Object::Directory { .. } => {
                self.push(context, Action::Enter, Vec::new());
                Ok(())
            }
            Object::Pipe { .. } => Err("a pipe".into()),
            Object::Null | Object::Other(_) => Err("a device".into()),
        }
    }

    /// What was opened as a file is a directory: from the next time on it is one from the beginning.
    fn turns_out_directory(&mut self, open: usize, node: usize) {
        self.names.is_directory_after_all(node);
        if self.names.is_directory(node)
            && let Some(path) = self.names.origin(node).cloned()
        {
            self.opens[open].object = Object::Directory { path, node, listed: 0, there: None };
        }
    }

    fn list(&mut self, context: &Context<'_>, fd: i32, entries: u64) -> Done {
        value(context)?;
        let open = self.open_of(context.process, fd)?;
        if entries > MOST_AT_ONCE {
            return Err("too long".into());
        }
        if let Object::File(node) = self.opens[open].object {
            self.turns_out_directory(open, node);
        }
        let Object::Directory { path, node, listed, there } = &mut self.opens[open].object else {
            return Err("not a directory".into());
        };
        let (path, node) = (path.clone(), *node);
        let is_first = there.is_none();
        let was_there = *there.get_or_insert(self.names.count(node));
        *listed += entries;
        // Its own name and its parent's are listed, too.
        let total = listed.saturating_sub(2);
        if entries == 0 {
            if total > was_there
                && let Some(origin) = self.names.origin(node)
            {
                let more = self.fillers.entry(origin.clone()).or_default();
                *more = (*more).max(total - was_there);
            }
            self.compare(context, "names in the directory", total, was_there);
        }
        if !is_first {
            self.push(context, Action::Enter, Vec::new());
            return Ok(());
        }
        let mut things = Planner::at_path(&path, false);
        let text: String =
            path.iter().fold(String::new(), |text, name| text + "/" + &String::from_utf8_lossy(name));
        things.push((Thing::Names(text), true));
        self.push(context, Action::List { path: kernel_path(&path), answer: was_there }, things);
        Ok(())
    }

    fn seek(&mut self, context: &Context<'_>, fd: i32, to_end: bool) -> Done {
        let to = value(context)?;
        let open = self.open_of(context.process, fd)?;
        let things = vec![(Thing::Open(open), true)];
        match self.opens[open].object {
            Object::File(node) => {
                if to_end {
                    self.names.is_long(node, to);
                }
                if to > MOST_BYTES {
                    return Err("too far".into());
                }
                self.opens[open].offset = to;
                self.push(context, Action::Seek { fd, to }, things);
                Ok(())
            }
            Object::Directory { ref mut listed, ref mut there, .. } => {
                (*listed, *there) = (0, None);
                self.push(context, Action::Enter, things);
                Ok(())
            }
            _ => Err("not a file".into()),
        }
    }

    fn read(&mut self, context: &Context<'_>, fd: i32, count: u64, offset: Option<u64>) -> Done {
        let recorded = value(context)?;
        let open = self.open_of(context.process, fd)?;
        if recorded > count || recorded > MOST_AT_ONCE {
            return Err("too long, or more than was asked for".into());
        }
        let count = count.min(MOST_AT_ONCE);
        match self.opens[open].object {
            Object::File(node) => {
                let at = offset.unwrap_or(self.opens[open].offset);
                if at > MOST_BYTES {
                    return Err("too far".into());
                }
                if recorded > 0 {
                    self.names.is_as_long_as(node, at + recorded);
                }
                self.names.looked_at(node, at + recorded);
                let there = self.names.size(node).saturating_sub(at).min(count);
                self.compare(context, "bytes read", recorded, there);
                let bytes = self.names.read(node, at, there);
                let mut things = vec![(Thing::Bytes(node), false)];
                if offset.is_none() {
                    things.push((Thing::Open(open), true));
                }
                let (answer, sum) = (there as usize, sum(&bytes));
                self.push(context, Action::Read { fd, count: count as usize, offset, answer, sum }, things);
                if offset.is_none() {
                    self.opens[open].offset = at + recorded;
                    if recorded != there {
                        // It goes on where it did.
                        self.push_silent(context, Action::Seek { fd, to: at + recorded });
                    }
                }
                Ok(())
            }
            Object::Null => {
                self.compare(context, "bytes read", recorded, 0);
                let action =
                    Action::Read { fd, count: count as usize, offset: None, answer: 0, sum: sum(&[]) };
                self.push(context, action, Vec::new());
                Ok(())
            }
            Object::Pipe { pipe, writes: false } => {
                if recorded == 0 && count > 0 && self.can_write(context.process, pipe) {
                    let what = "recorded: the end of a pipe that it can write to itself; it is left out";
                    self.deviates(context, what.to_owned());
                    return Ok(());
                }
                let through = &mut self.pipes[pipe];
                let range = through.read..through.read + recorded as usize;
                through.read = range.end;
                let number = self.plan.processes[context.process].ops.len();
                self.pipes[pipe].reads.push((context.process, number, range));
                let (count, answer) = (count as usize, recorded as usize);
                let action = Action::ReadPipe { fd, count, answer, sum: sum(&[]) };
                self.push(context, action, vec![(Thing::End(2 * pipe), true)]);
                Ok(())
            }
            Object::Pipe { .. } => Err("the wrong end of a pipe".into()),
            Object::Directory { .. } => Err("a directory".into()),
            Object::Other(what) => Err(what.into()),
        }
    }

    /// A process has an end of a pipe to write to.
    fn can_write(&self, process: usize, pipe: usize) -> bool {
        self.running[process].table.values().any(|held| {
            matches!(self.opens[held.open].object, Object::Pipe { pipe: of, writes: true } if of == pipe)
        })
    }

    fn write(&mut self, context: &Context<'_>, fd: i32, count: u64, offset: Option<u64>) -> Done {
        let len = value(context)?;
        let open = self.open_of(context.process, fd)?;
        if len > count || len > MOST_AT_ONCE {
            return Err("too long, or more than was asked for".into());
        }
        // Seeds of files that were there are small.
        let seed = (1 << 40) + self.writes;
        let len_bytes = len as usize;
        let action = Action::Write { fd, seed, len: len_bytes, offset };
        match self.opens[open].object {
            Object::File(node) => {
                let own =
                    if self.opens[open].appends { self.names.size(node) } else { self.opens[open].offset };
                let at = offset.unwrap_or(own);
                let end = at.saturating_add(len);
                let more = self.names.growth(node, end);
                if end > MOST_BYTES || self.plan.written_bytes + more > MOST_WRITTEN {
                    return Err("too far".into());
                }
                self.plan.written_bytes += more;
                self.names.write(node, at, &contents(seed, 0, len_bytes));
                let mut things = vec![(Thing::Bytes(node), true)];
                if offset.is_none() {
                    things.push((Thing::Open(open), true));
                    self.opens[open].offset = at + len;
                }
                self.push(context, action, things);
            }
            Object::Null => {
                self.push(context, Action::Write { fd, seed, len: len_bytes, offset: None }, Vec::new())
            }
            Object::Pipe { pipe, writes: true } => {
                self.piped += len;
                if self.piped > MOST_WRITTEN {
                    return Err("too much".into());
                }
                let number = self.done(context.process);
                let through = &mut self.pipes[pipe];
                let start = through.bytes.len();
                through.bytes.extend_from_slice(&contents(seed, 0, len_bytes));
                through.writes.push((context.process, number, start..start + len_bytes));
                self.push(context, action, vec![(Thing::End(2 * pipe + 1), true)]);
            }
            Object::Pipe { .. } => return Err("the wrong end of a pipe".into()),
            Object::Directory { .. } => return Err("a directory".into()),
            Object::Other(what) => return Err(what.into()),
        }
        self.writes += 1;
        Ok(())
    }

    // ---------------------------------------------------------------------------------------------- mappings

    fn map(&mut self, context: &Context<'_>, fd: i32, offset: u64, len: u64, shared: bool) -> Done {
        let start = value(context)?;
        // Whatever comes of it: what was there is not there any more.
        self.unmap(context, start, len, false);
        let open = self.open_of(context.process, fd)?;
        let Object::File(node) = self.opens[open].object else { return Err("not a file".into()) };
        if shared {
            return Err("shared".into());
        }
        if len == 0 || len > MOST_AT_ONCE || offset > MOST_BYTES || !offset.is_multiple_of(PAGE) {
            return Err("too long".into());
        }
        // Where nothing else tells how long the file is.
        if self.names.size(node) == 0 {
            self.names.is_long(node, offset + len);
        }
        let len = len.next_multiple_of(PAGE);
        self.names.looked_at(node, offset + len);
        let bytes = self.names.read(node, offset, len);
        let mut words = Vec::new();
        for page in 0..len / PAGE {
            let mut word = [0; 8];
            let at = (page * PAGE) as usize;
            let there = bytes.len().saturating_sub(at).min(8);
            word[..there].copy_from_slice(&bytes[at.min(bytes.len())..][..there]);
            words.extend_from_slice(&word);
        }
        let id = self.mapped;
        self.mapped += 1;
        let mapping = Mapping { start, end: start.saturating_add(len), id, from: 0 };
        self.running[context.process].mappings.push(mapping);
        let action = Action::Map { fd, offset, len: len as usize, id, sum: sum(&words) };
        self.push(context, action, vec![(Thing::Bytes(node), false)]);
        Ok(())
    }

    /// Takes what lies in these addresses out of mappings; true if anything did. The first part that goes is the call's own.
    fn unmap(&mut self, context: &Context<'_>, at: u64, len: u64, is_own: bool) -> bool {
        let end = at.saturating_add(len).checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
        let mappings = std::mem::take(&mut self.running[context.process].mappings);
        let (mut left, mut own) = (Vec::new(), is_own);
        let mut found = false;
        for mapping in mappings {
            let (from, to) = (mapping.start.max(at), mapping.end.min(end));
            if from >= to {
                left.push(mapping);
                continue;
            }
            found = true;
            let before = from - mapping.start;
            let action = Action::Unmap {
                id: mapping.id,
                from: (mapping.from + before) as usize,
                len: (to - from) as usize,
            };
            if std::mem::take(&mut own) {
                self.push(context, action, Vec::new());
            } else {
                self.push_silent(context, action);
            }
            if from > mapping.start {
                left.push(Mapping { end: from, ..mapping });
            }
            if to < mapping.end {
                left.push(Mapping { start: to, from: mapping.from + (to - mapping.start), ..mapping });
            }
        }
        self.running[context.process].mappings = left;
        found
    }

    // ---------------------------------------------------------------------------------------------- processes

    fn fork(&mut self, context: &Context<'_>, is_thread: bool) -> Done {
        let pid = u32::try_from(value(context)?).map_err(|_| "no process")?;
        if self.process_of(pid).is_some() {
            return Err("a process that is there".into());
        }
        if is_thread {
            self.add_thread(pid, context.process);
            return Err("a thread".into());
        }
        let running: Running = self.running[context.process].clone();
        let number = self.done(context.process);
        let child = self.add(pid, running, Some((context.process, number + 1)));
        self.forked.insert(child);
        self.push(context, Action::Fork { process: child }, Vec::new());
        Ok(())
    }

    fn exec(&mut self, context: &Context<'_>) {
        let running = &mut self.running[context.process];
        let closing: BTreeSet<i32> =
            running.table.iter().filter(|(_, held)| held.closes_on_exec).map(|(fd, _)| *fd).collect();
        for mapping in std::mem::take(&mut running.mappings) {
            let (from, len) = (mapping.from as usize, (mapping.end - mapping.start) as usize);
            self.push_silent(context, Action::Unmap { id: mapping.id, from, len });
        }
        for fd in closing {
            self.unbind(context, fd);
        }
    }
}

fn flags(how: How) -> OpenFlags {
    let mut flags = OpenFlags::empty();
    for (is_set, flag) in [
        (how.read, OpenFlags::READ),
        (how.write, OpenFlags::WRITE),
        (how.create, OpenFlags::CREATE),
        (how.create && how.exclusive, OpenFlags::EXCLUSIVE),
        (how.truncate && how.write, OpenFlags::TRUNCATE),
        (how.append, OpenFlags::APPEND),
    ] {
        flags.set(flag, is_set);
    }
    flags
}
