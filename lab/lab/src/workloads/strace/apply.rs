//! What each recorded call does to descriptors and names of the plain model, and what is made again of it; with open
//! files and mappings, in `apply_files`.
//!
//! A call that failed is made again if it failed for a reason that names have (there is none, there is one already,
//! ...); one that failed otherwise, as for want of rights, is left out. Where the plain model answers something else
//! than was recorded, that is a deviation; if the one succeeds and the other fails, the call is not made.

use super::calls::{At, How, Request, StatResult};
use super::names::{Hint, MAX_BYTES, Names, Node, Path};
use super::ops::{Action, Through};
use super::order::Thing;
use super::plan::{Context, NotModelled, Object, Planner, ProcessView, errno, kernel_path, kernel_target};
use pageferry_hal::PAGE_SIZE;
use pageferry_kernel::{Errno, OpenFlags};
use pageferry_trace::strace::Answer;
use std::collections::BTreeSet;

pub(super) const PAGE: u64 = PAGE_SIZE as u64;
/// The most that a call of a recording moves or maps.
pub(super) const MAX_AT_ONCE: u64 = 1 << 26;
/// The longest path of a symbolic link that the modelled kernel keeps.
const MAX_LINK_BYTES: usize = 1023;
/// The most that all calls write to files and pipes, holes counted in.
pub(super) const MAX_WRITTEN: u64 = 1 << 28;

/// What a call with two names does.
#[derive(Clone, Copy)]
enum Naming {
    Rename {
        /// What has the new name already may go.
        replaces: bool,
    },
    Link,
}

/// How a call ended when it was recorded.
pub(super) enum CallEnd {
    Well(i64),
    /// With an error that names have.
    With(Errno),
}

/// What the recording and the plain model say of a call.
pub(super) fn ended(context: &Context<'_>) -> Result<CallEnd, NotModelled> {
    match &context.call.answer {
        Answer::Value(value) => Ok(CallEnd::Well(*value)),
        Answer::Error(name) => errno(name).map(CallEnd::With).ok_or_else(|| name.clone()),
        Answer::None => Err("it did not return".into()),
    }
}

/// Of a call that must have succeeded.
pub(super) fn value(context: &Context<'_>) -> Result<u64, NotModelled> {
    match ended(context)? {
        CallEnd::Well(value) => u64::try_from(value).map_err(|_| "a negative answer".into()),
        CallEnd::With(_) => Err(match &context.call.answer {
            Answer::Error(name) => name.clone(),
            _ => String::new(),
        }),
    }
}

pub(super) fn descriptor(context: &Context<'_>) -> Result<i32, NotModelled> {
    i32::try_from(value(context)?).map_err(|_| "no descriptor".into())
}

/// What is at a path that leads to nothing on a disk: every process may find something else there at any time.
fn on_no_disk(path: &Path) -> Option<&'static str> {
    match path.first()?.as_slice() {
        b"dev" => Some("a device"),
        b"proc" | b"sys" => Some("a view of the kernel"),
        _ => None,
    }
}

impl Planner {
    /// Does what a call asks for.
    ///
    /// # Errors
    /// Why it is not made again.
    pub(super) fn apply(&mut self, context: &Context<'_>, request: Request) -> Result<(), NotModelled> {
        let process = context.process;
        match request {
            Request::Open { at, how, closes_on_exec } => self.open(context, &at, how, closes_on_exec),
            Request::Close { fd } => self.close(context, fd),
            Request::CloseRange { first, last, at_exec } => {
                value(context)?;
                if first > last {
                    return Err("a range without an end".into());
                }
                self.push(context, Action::Enter, Vec::new());
                self.close_range(context, first, last, at_exec);
                Ok(())
            }
            Request::Duplicate { fd, closes_on_exec } => {
                let to = descriptor(context)?;
                let Some(held) = self.descriptor(process, fd) else {
                    // What had the new number is closed all the same.
                    self.unbind(context, to);
                    return Err("not opened in the recording".into());
                };
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
                self.open_of(process, fd)?;
                self.push(context, Action::Enter, Vec::new());
                Ok(())
            }
            Request::Flags { fd } => {
                value(context)?;
                self.open_of(process, fd)?;
                self.push(context, Action::Enter, Vec::new());
                Ok(())
            }
            Request::Pipe { ends, closes_on_exec } => {
                value(context)?;
                let pipe = self.pipes.len();
                self.pipes.push(Through::default());
                for (fd, writes) in ends.into_iter().zip([false, true]) {
                    let open = self.add_open(Object::Pipe { pipe, writes }, false);
                    self.bind(context, fd, open, closes_on_exec);
                }
                self.push(context, Action::Pipe { ends, pipe }, Vec::new());
                Ok(())
            }
            Request::Read { fd, count, offset } => self.read(context, fd, count, offset),
            Request::Write { fd, count, offset } => self.write(context, fd, count, offset),
            Request::Seek { fd, to_end, to } => {
                let answered = value(context)?;
                self.seek(context, fd, to_end, to.unwrap_or(answered))
            }
            Request::Truncate { fd, size } => {
                value(context)?;
                let open = self.open_of(process, fd)?;
                let Object::File(node) = self.opens[open].object else { return Err("not a file".into()) };
                self.permits(open, true)?;
                if size > MAX_BYTES {
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
            Request::Rename { from, to, replaces } => {
                self.two_names(context, &from, &to, Naming::Rename { replaces })
            }
            Request::Link { from, to } => {
                self.plan.made += 1;
                self.two_names(context, &from, &to, Naming::Link)
            }
            Request::LinkOpen { fd, to } => self.link_open(context, fd, &to),
            Request::Symlink { path, at } => self.symlink(context, &path, &at),
            Request::ReadLink { at, path } => self.read_link(context, &at, path.as_deref()),
            Request::Copy { from, to, count } => self.copy(context, from, to, count),
            Request::Look { at, told, follows } => self.look(context, &at, told, follows),
            Request::Chdir { at } => {
                let path = self.path(context, &at)?;
                let real = self.real(&path, true)?;
                let did = matches!(ended(context)?, CallEnd::Well(_));
                let looked = self.look(context, &at, Some(StatResult::DIRECTORY), true);
                if did {
                    // What is above a directory is above where it is, not above a link to it.
                    self.running[process].here = real;
                }
                looked
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
            Request::Fork { is_thread, shares_descriptors } => {
                self.fork(context, is_thread, shares_descriptors)
            }
            Request::Exec { at } => {
                let did = matches!(ended(context)?, CallEnd::Well(_));
                self.look(context, &at, None, true)?;
                if did {
                    self.exec(context);
                }
                Ok(())
            }
            Request::Wait { child } => {
                value(context)?;
                let Some(pid) = child.filter(|child| !context.goes_on(*child)) else {
                    self.push(context, Action::Enter, Vec::new());
                    return Ok(());
                };
                let child = self.process_of(pid);
                if child == Some(process) {
                    // A process that is one with this.
                    self.push(context, Action::Enter, Vec::new());
                    return Ok(());
                }
                let child = child
                    .filter(|child| self.forked.get(child) == Some(&process))
                    .ok_or("not of its child")?;
                if !self.waited.insert(child) {
                    return Err("an end that was waited for".into());
                }
                // Where its end was recorded later, or not at all.
                self.end(child, pid, context.line);
                self.push(context, Action::Wait { process: child }, Vec::new());
                let done = self.done(child);
                self.order.waited(process, (child, done));
                Ok(())
            }
        }
    }

    // ---------------------------------------------------------------------------------------------- names

    /// What a failed call tells of a path.
    pub(super) fn learn(&mut self, path: &Path, failed: Errno) {
        match failed {
            Errno::NoFile => self.names.is_missing(path),
            Errno::Exists => self.tells(path, None),
            Errno::IsDirectory => self.tells(path, Some(true)),
            Errno::NotEmpty => {
                if let Ok(node) = self.names.find(path, Hint::There { is_directory: Some(true) })
                    && self.names.is_directory(node)
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

    /// What comes of a call whose answers are known, and which meets others at these things: true if it is made.
    pub(super) fn agrees(
        &mut self,
        context: &Context<'_>,
        recorded: &CallEnd,
        model: &Result<(), Errno>,
        things: &[(Thing, bool)],
    ) -> bool {
        let is_made = self.agree(context, recorded, model);
        if !is_made {
            self.meets(context, things);
        }
        is_made
    }

    fn agree(&mut self, context: &Context<'_>, recorded: &CallEnd, model: &Result<(), Errno>) -> bool {
        match (recorded, model) {
            (CallEnd::Well(_), Ok(())) => true,
            (CallEnd::With(one), Err(other)) if one == other => true,
            (CallEnd::With(one), Err(other)) => {
                self.deviates(context, format!("recorded: {one}, here: {other}"));
                true
            }
            (CallEnd::Well(_), Err(other)) => {
                self.deviates(context, format!("recorded: done, here: {other}; it is left out"));
                false
            }
            (CallEnd::With(one), Ok(())) => {
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
    ) -> Result<(), NotModelled> {
        let path = self.path(context, at)?;
        let real = self.real(&path, false)?;
        let recorded = ended(context)?;
        let did = matches!(recorded, CallEnd::Well(_));
        if let CallEnd::With(failed) = recorded {
            self.learn(&real, failed);
        }
        let (answer, action) = change(self, &real, did);
        let mut things = Planner::on_way(&path, &real, did);
        if matches!(recorded, CallEnd::With(Errno::NotEmpty)) {
            things.push((Planner::names_in(&real), true));
        }
        if self.agrees(context, &recorded, &answer, &things) {
            self.push(context, action(kernel_path(&path), answer), things);
        }
        Ok(())
    }

    fn symlink(&mut self, context: &Context<'_>, leads_to: &[u8], at: &At) -> Result<(), NotModelled> {
        let path = self.path(context, at)?;
        let real = self.real(&path, false)?;
        let recorded = ended(context)?;
        let did = matches!(recorded, CallEnd::Well(_));
        let to = kernel_target(leads_to);
        if !(1..=MAX_LINK_BYTES).contains(&to.len()) {
            return Err("a long path, or none".into());
        }
        if let CallEnd::With(failed) = recorded {
            self.learn(&real, failed);
        }
        self.plan.made += 1;
        let answer = self.names.make_link(&real, leads_to, did);
        let things = Planner::on_way(&path, &real, did);
        if self.agrees(context, &recorded, &answer, &things) {
            let action = Action::Symlink { to, path: kernel_path(&path), answer };
            self.push(context, action, things);
        }
        Ok(())
    }

    fn read_link(&mut self, context: &Context<'_>, at: &At, shown: Option<&[u8]>) -> Result<(), NotModelled> {
        if at.path.is_empty() {
            return Err("of a descriptor".into());
        }
        let path = self.path(context, at)?;
        if let Some(what) = on_no_disk(&path) {
            return Err(what.into());
        }
        let real = self.real(&path, false)?;
        let recorded = match &context.call.answer {
            // What is there is no link.
            Answer::Error(name) if name == "EINVAL" => CallEnd::With(Errno::Invalid),
            _ => ended(context)?,
        };
        let hint = match recorded {
            CallEnd::Well(_) | CallEnd::With(Errno::Invalid) => Hint::There { is_directory: None },
            CallEnd::With(failed) => {
                self.learn(&real, failed);
                Hint::Nothing
            }
        };
        let found = self.names.find(&real, hint);
        if let (CallEnd::Well(len), Ok(node)) = (&recorded, found) {
            let len = len.unsigned_abs().min(MAX_LINK_BYTES as u64);
            // What is not shown of a long one is not known.
            let leads_to = shown.map(|shown| {
                let mut path = shown.to_vec();
                path.resize(len as usize, b'x');
                path
            });
            self.names.is_link(node, leads_to.as_deref(), len);
        }
        let answer =
            found.and_then(|node| self.names.leads_to(node).map(<[u8]>::to_vec).ok_or(Errno::Invalid));
        let things = Planner::on_way(&path, &real, false);
        let outcome = answer.as_ref().map(drop).map_err(|errno| *errno);
        if !self.agrees(context, &recorded, &outcome, &things) {
            return Ok(());
        }
        if let (CallEnd::Well(len), Ok(path)) = (&recorded, &answer) {
            self.compare(context, "the length of its path", len.unsigned_abs(), path.len() as u64);
        }
        let answer = answer.map(|path| kernel_target(&path));
        let action = Action::ReadLink { path: kernel_path(&path), answer };
        self.push(context, action, things);
        Ok(())
    }

    fn two_names(
        &mut self,
        context: &Context<'_>,
        from: &At,
        to: &At,
        naming: Naming,
    ) -> Result<(), NotModelled> {
        let renames = matches!(naming, Naming::Rename { .. });
        let (old, new) = (self.path(context, from)?, self.path(context, to)?);
        let (from, to) = (self.real(&old, false)?, self.real(&new, false)?);
        let recorded = ended(context)?;
        let did = matches!(recorded, CallEnd::Well(_));
        let is_link = |names: &Names| names.known(&from).is_some_and(|node| names.leads_to(node).is_some());
        if !renames && is_link(&self.names) {
            // This kernel would give a name to what it leads to.
            return Err("of a symbolic link".into());
        }
        if let CallEnd::With(failed) = recorded {
            match failed {
                Errno::Exists | Errno::NotEmpty | Errno::IsDirectory => self.learn(&to, failed),
                Errno::NoFile => self.names.is_missing(&from),
                _ => {}
            }
        }
        if let (Naming::Rename { replaces: false }, CallEnd::With(Errno::Exists)) = (naming, &recorded) {
            // The modelled kernel has no rename that replaces nothing: what has the name is looked up.
            let answer = self.names.find(&to, Hint::Nothing);
            let answer = answer.map(|node| self.length_told(node));
            let action = Action::Look { path: kernel_path(&new), follows: false, answer };
            self.push(context, action, Planner::on_way(&new, &to, false));
            return Ok(());
        }
        let answer =
            if renames { self.names.rename(&from, &to, did) } else { self.names.link(&from, &to, did) };
        let mut things = Planner::on_way(&old, &from, did && renames);
        things.extend(Planner::on_way(&new, &to, did));
        if matches!(recorded, CallEnd::With(Errno::NotEmpty)) {
            things.push((Planner::names_in(&to), true));
        }
        if self.agrees(context, &recorded, &answer, &things) {
            let (from, to) = (kernel_path(&old), kernel_path(&new));
            let action =
                if renames { Action::Rename { from, to, answer } } else { Action::Link { from, to, answer } };
            self.push(context, action, things);
        }
        Ok(())
    }

    fn look(
        &mut self,
        context: &Context<'_>,
        at: &At,
        told: Option<StatResult>,
        follows: bool,
    ) -> Result<(), NotModelled> {
        let path = self.path(context, at)?;
        if let Some(what) = on_no_disk(&path) {
            return Err(what.into());
        }
        let real = self.real(&path, follows)?;
        let recorded = ended(context)?;
        let hint = match recorded {
            CallEnd::Well(_) => Hint::There { is_directory: told.map(|told| told.is_directory) },
            CallEnd::With(failed) => {
                self.learn(&real, failed);
                Hint::Nothing
            }
        };
        let found = self.names.find(&real, hint);
        let mut things = Planner::on_way(&path, &real, false);
        if !self.agrees(context, &recorded, &found.map(drop), &things) {
            return Ok(());
        }
        let answer = found.map(|node| {
            if let Some(len) = told.and_then(|told| told.link_bytes) {
                self.names.is_link(node, None, len);
            }
            if let Some(leads_to) = self.names.leads_to(node) {
                let (here, in_kernel) = (leads_to.len() as u64, kernel_target(leads_to).len() as u64);
                let recorded = told.and_then(|told| told.link_bytes).unwrap_or(here);
                self.compare(context, "the length of its path", recorded, here);
                return Some(in_kernel);
            }
            if let Some(size) = told.and_then(|told| told.size_bytes) {
                self.names.is_long(node, size);
                self.compare(context, "its length", size, self.names.size(node));
            }
            things.push((Thing::Bytes(node), false));
            (!self.names.is_directory(node)).then(|| self.names.size(node))
        });
        self.push(context, Action::Look { path: kernel_path(&path), follows, answer }, things);
        Ok(())
    }

    /// What looking up a name tells of a length: of a file its own, of a symbolic link that of its path, of a directory
    /// none.
    fn length_told(&self, node: Node) -> Option<u64> {
        match self.names.leads_to(node) {
            Some(leads_to) => Some(kernel_target(leads_to).len() as u64),
            None => (!self.names.is_directory(node)).then(|| self.names.size(node)),
        }
    }

    pub(super) fn compare(&mut self, context: &Context<'_>, of: &str, recorded: u64, here: u64) {
        if recorded != here {
            self.deviates(context, format!("{of}: {recorded} recorded, {here} here"));
        }
    }

    fn open(
        &mut self,
        context: &Context<'_>,
        at: &At,
        how: How,
        closes_on_exec: bool,
    ) -> Result<(), NotModelled> {
        let path = self.path(context, at)?;
        let recorded = ended(context)?;
        if let Some(what) = on_no_disk(&path) {
            return self.open_special(context, &path, what, closes_on_exec);
        }
        let real = self.real(&path, how.follows)?;
        let did = matches!(recorded, CallEnd::Well(_));
        if how.unnamed && did {
            return self.open_unnamed(context, (&path, &real), how, closes_on_exec);
        }
        match recorded {
            CallEnd::With(Errno::IsDirectory) if how.unnamed => {
                self.tells(&real, Some(true));
                return Err("without a name, which its file system has not".into());
            }
            CallEnd::With(Errno::NotDirectory) if how.directory => self.tells(&real, Some(false)),
            CallEnd::With(Errno::Loop) if !how.follows => {
                if let Ok(node) = self.names.find(&real, Hint::There { is_directory: None }) {
                    self.names.is_link(node, None, 1);
                }
            }
            CallEnd::With(failed) => self.learn(&real, failed),
            CallEnd::Well(_) => {}
        }
        let found = if did && how.create && how.exclusive {
            self.names.make_file(&real, false)
        } else if did && how.create {
            // A directory is not opened to be made.
            match self.names.find(&real, Hint::Directories) {
                Err(Errno::NoFile) => self.names.make_file(&real, !how.truncate),
                found => found,
            }
        } else {
            let is_directory = if how.directory { Some(true) } else { None };
            self.names.find(&real, if did { Hint::There { is_directory } } else { Hint::Nothing })
        };
        let is_link = found.is_ok_and(|node| self.names.leads_to(node).is_some());
        if is_link && (how.place || how.directory) {
            return Err("of a symbolic link".into());
        }
        let answer = match found {
            Ok(_) if is_link && !(how.create && how.exclusive) => Err(Errno::Loop),
            Ok(_) if !did && how.create && how.exclusive => Err(Errno::Exists),
            Ok(node) if !did && self.names.is_directory(node) && how.write => Err(Errno::IsDirectory),
            Ok(node) if how.directory && !self.names.is_directory(node) => Err(Errno::NotDirectory),
            found => found,
        };
        // What was not opened then would be made here.
        let would_make =
            !did && how.create && answer == Err(Errno::NoFile) && self.names.is_free(&real).is_ok();
        let outcome = if would_make { Ok(()) } else { answer.map(drop) };
        let makes = did && how.create;
        let mut things = Planner::on_way(&path, &real, makes);
        if !self.agrees(context, &recorded, &outcome, &things) {
            if did {
                let open = self.add_open(Object::Other("of a call that was left out"), false);
                self.bind(context, descriptor(context)?, open, closes_on_exec);
            }
            return Ok(());
        }
        self.plan.made += u64::from(makes);
        let Ok(node) = answer else {
            let path = kernel_path(&path);
            // What is opened as a directory, the kernel looks into.
            let action = if how.directory {
                Action::List { path, answer: answer.map(|_| 0) }
            } else if how.place {
                Action::Look { path, follows: how.follows, answer: answer.map(|_| None) }
            } else {
                Action::Open { path, flags: flags(how), fd: -1, answer: answer.map(drop) }
            };
            self.push(context, action, things);
            return Ok(());
        };
        let fd = descriptor(context)?;
        if self.names.is_directory(node) {
            let object = Object::Directory { path: real, node, listed: 0, there: None };
            let open = self.add_open(object, false);
            self.bind(context, fd, open, closes_on_exec);
            let action = Action::Look { path: kernel_path(&path), follows: how.follows, answer: Ok(None) };
            self.push(context, action, things);
            return Ok(());
        }
        if how.place {
            let open = self.add_open(Object::Other("a place"), false);
            self.bind(context, fd, open, closes_on_exec);
            let answer = Ok(Some(self.names.size(node)));
            things.push((Thing::Bytes(node), false));
            self.push(
                context,
                Action::Look { path: kernel_path(&path), follows: how.follows, answer },
                things,
            );
            return Ok(());
        }
        if how.truncate && how.write {
            self.names.truncate(node, 0);
        }
        let truncates = how.truncate && how.write;
        things.push((Thing::Bytes(node), truncates));
        let open = self.add_open(Object::File(node), how.append);
        (self.opens[open].reads, self.opens[open].writes) = (how.read, how.write);
        self.bind(context, fd, open, closes_on_exec);
        let action = Action::Open { path: kernel_path(&path), flags: flags(how), fd, answer: Ok(()) };
        self.push(context, action, things);
        Ok(())
    }

    fn open_special(
        &mut self,
        context: &Context<'_>,
        path: &Path,
        what: &'static str,
        closes_on_exec: bool,
    ) -> Result<(), NotModelled> {
        let fd = descriptor(context)?;
        let is_null = kernel_path(path) == "/mnt/dev/null";
        let object = if is_null { Object::Null } else { Object::Other(what) };
        let open = self.add_open(object, false);
        self.bind(context, fd, open, closes_on_exec);
        if !is_null {
            return Err(what.into());
        }
        let flags = OpenFlags::READ | OpenFlags::WRITE;
        self.push(context, Action::Open { path: "/dev/null".into(), flags, fd, answer: Ok(()) }, Vec::new());
        Ok(())
    }

    // ---------------------------------------------------------------------------------------------- processes

    fn fork(
        &mut self,
        context: &Context<'_>,
        is_thread: bool,
        shares_descriptors: bool,
    ) -> Result<(), NotModelled> {
        let pid = u32::try_from(value(context)?).map_err(|_| "no process")?;
        if self.is_alive(pid) {
            return Err("a process that is there".into());
        }
        if is_thread || shares_descriptors {
            self.add_thread(pid, context.process, !is_thread);
            return Err(if is_thread { "a thread" } else { "it shares descriptors: as a thread" }.into());
        }
        let child = self.add_child(context, pid);
        self.push(context, Action::Fork { process: child }, Vec::new());
        self.make_room(context.process);
        Ok(())
    }

    /// A process that has what its parent has; the next call of the parent makes it.
    fn add_child(&mut self, context: &Context<'_>, pid: u32) -> usize {
        let running: ProcessView = self.running[context.process].clone();
        let number = self.done(context.process);
        let child = self.add(pid, running, Some((context.process, number + 1)));
        self.forked.insert(child, context.process);
        self.forget_kept(&Context { process: child, ..*context });
        child
    }

    fn exec(&mut self, context: &Context<'_>) {
        if self.part(context.pid) {
            let child = self.add_child(context, context.pid);
            self.push_silent(context, Action::Fork { process: child });
            let of_child = Context { process: child, ..*context };
            return self.exec(&of_child);
        }
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

pub(super) fn flags(how: How) -> OpenFlags {
    let mut flags = OpenFlags::empty();
    for (is_set, flag) in [
        (how.read, OpenFlags::READ),
        (how.write, OpenFlags::WRITE),
        (how.create, OpenFlags::CREATE),
        (how.create && how.exclusive, OpenFlags::EXCLUSIVE),
        (how.truncate && how.write, OpenFlags::TRUNCATE),
        (how.append, OpenFlags::APPEND),
        (!how.follows && !how.exclusive, OpenFlags::NO_FOLLOW),
    ] {
        flags.set(flag, is_set);
    }
    flags
}
