//! What each recorded call does to open files and mappings, and what is made again of it. Which calls those are is in
//! `apply`.

use super::apply::{MAX_AT_ONCE, MAX_WRITTEN, PAGE, value};
use super::calls::StatResult;
use super::contents::{contents, sum};
use super::names::MAX_BYTES;
use super::ops::{Action, OpenEnd};
use super::order::Thing;
use super::plan::{Context, Descriptor, Mapping, NotModelled, Object, Planner, kernel_path};
use pageferry_trace::strace::Answer;

impl Planner {
    pub(super) fn close(&mut self, context: &Context<'_>, fd: i32) -> Result<(), NotModelled> {
        // Whatever else it answers, a close has closed what was open.
        match &context.call.answer {
            Answer::Error(error) if error != "EBADF" => {}
            _ => drop(value(context)?),
        }
        self.keep_for_others(context, fd);
        let open = match self.open_of(context.process, fd) {
            Ok(open) => open,
            Err(_) if self.closed_early.remove(&(context.process, fd)) => {
                self.push(context, Action::Enter, Vec::new());
                return Ok(());
            }
            Err(why) => {
                self.running[context.process].table.remove(&fd);
                return Err(why);
            }
        };
        self.running[context.process].table.remove(&fd);
        let action = if self.is_in_kernel(open) { Action::Close { fd } } else { Action::Enter };
        self.push(context, action, self.met_by_close(open));
        Ok(())
    }

    /// Descriptors of a range close, or will at an exec.
    pub(super) fn close_range(&mut self, context: &Context<'_>, first: i32, last: i32, at_exec: bool) {
        let table = &mut self.running[context.process].table;
        if at_exec {
            table.range_mut(first..=last).for_each(|(_, held)| held.closes_on_exec = true);
            return;
        }
        let closing: Vec<i32> = table.range(first..=last).map(|(fd, _)| *fd).collect();
        for fd in closing {
            self.unbind(context, fd);
        }
    }

    /// A process has seen the end of a pipe: nobody has an end to write to any more. One that is held all the same is
    /// closed here, and the reader waits for that: by a call that had begun, or unseen, which is told. True if there
    /// was one.
    fn ends(&mut self, context: &Context<'_>, pipe: usize) -> bool {
        let mut closed = false;
        for process in 0..self.running.len() {
            let pid = self.plan.processes[process].pid;
            if process != context.process && !context.goes_on(pid) {
                if self.can_write(process, pipe) {
                    // What a process has when it ends closes before strace sees its end.
                    self.end(process, pid, context.line);
                }
                continue;
            }
            let writes = |held: &Descriptor| self.is_writer(held, pipe);
            let table = &self.running[process].table;
            let fds: Vec<(i32, bool)> = table
                .iter()
                .filter(|(_, held)| writes(held))
                .map(|(fd, held)| (*fd, self.is_closing(context, process, *fd, held)))
                .collect();
            for (fd, is_closing) in fds {
                if is_closing {
                    self.closed_early.insert((process, fd));
                } else {
                    let what = format!(
                        "recorded: the end of a pipe that {fd} of process {pid} writes to; it is closed here"
                    );
                    self.deviates(context, what);
                }
                self.running[process].table.remove(&fd);
                let of_writer = Context { process, ..*context };
                self.push_silent_at(&of_writer, Action::Close { fd }, vec![(Thing::End(2 * pipe + 1), true)]);
                closed = true;
            }
        }
        closed
    }

    pub(super) fn stat(
        &mut self,
        context: &Context<'_>,
        fd: i32,
        told: Option<StatResult>,
    ) -> Result<(), NotModelled> {
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
            Object::Pipe { .. } => {
                self.push(context, Action::Enter, Vec::new());
                Ok(())
            }
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

    pub(super) fn list(&mut self, context: &Context<'_>, fd: i32, entries: u64) -> Result<(), NotModelled> {
        value(context)?;
        let open = self.open_of(context.process, fd)?;
        if entries > MAX_AT_ONCE {
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
            // While names are found, those that are used later are not known yet.
            if total > was_there
                && !self.names.finds()
                && let Some(origin) = self.names.origin(node)
            {
                let more = self.fillers.entry(origin.clone()).or_default();
                *more = (*more).max(total - was_there);
            }
            self.compare(context, "names in the directory", total, was_there);
        }
        let mut things = Planner::at_path(&path, false);
        things.push((Planner::names_in(&path), true));
        if !is_first {
            // What it tells of the first one is told too late to wait for.
            self.meets(context, &things);
            self.push(context, Action::Enter, Vec::new());
            return Ok(());
        }
        self.push(context, Action::List { path: kernel_path(&path), answer: Ok(was_there) }, things);
        Ok(())
    }

    pub(super) fn seek(
        &mut self,
        context: &Context<'_>,
        fd: i32,
        to_end: bool,
        to: u64,
    ) -> Result<(), NotModelled> {
        let open = self.open_of(context.process, fd)?;
        let things = vec![(Thing::Open(open), true)];
        match self.opens[open].object {
            Object::File(node) => {
                if to_end {
                    self.names.is_long(node, to);
                }
                if to > MAX_BYTES {
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

    pub(super) fn read(
        &mut self,
        context: &Context<'_>,
        fd: i32,
        count: u64,
        offset: Option<u64>,
    ) -> Result<(), NotModelled> {
        let recorded = value(context)?;
        let open = self.open_of(context.process, fd)?;
        self.permits(open, false)?;
        if recorded > count || recorded > MAX_AT_ONCE {
            return Err("too long, or more than was asked for".into());
        }
        let count = count.min(MAX_AT_ONCE);
        match self.opens[open].object {
            Object::File(node) => {
                let at = offset.unwrap_or(self.opens[open].offset);
                if at > MAX_BYTES {
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
                if offset.is_some() {
                    return Err("at an offset of a pipe".into());
                }
                let made_up = recorded == 0 && count > 0 && self.ends(context, pipe);
                let through = &self.pipes[pipe];
                let may_be = through.open_end.map_or(0, |end| end.left);
                let there = (through.bytes.len() + may_be).saturating_sub(through.read) as u64;
                if recorded > there && !self.others_can_write(context.process, pipe) {
                    // It would wait for itself.
                    let what = "recorded: bytes that no process has written; it is left out";
                    self.deviates(context, what.to_owned());
                    // A write of another thread's that was under way may have been before it.
                    self.meets(context, &[(Thing::End(2 * pipe + 1), false)]);
                    return Ok(());
                }
                let through = &mut self.pipes[pipe];
                let range = through.read..through.read + recorded as usize;
                through.read = range.end;
                let number = self.plan.processes[context.process].ops.len();
                self.pipes[pipe].reads.push((context.process, number, range));
                self.read_on(pipe);
                let (count, answer) = (count as usize, recorded as usize);
                let action = Action::ReadPipe { fd, count, answer, sum: sum(&[]) };
                let mut things = vec![(Thing::End(2 * pipe), true)];
                if made_up {
                    // After the last close.
                    things.push((Thing::End(2 * pipe + 1), false));
                }
                self.push(context, action, things);
                Ok(())
            }
            Object::Pipe { .. } => Err("the wrong end of a pipe".into()),
            Object::Directory { .. } => Err("a directory".into()),
            Object::Other(what) => Err(what.into()),
        }
    }

    /// Bytes go from a file to another, to a pipe or to the null device.
    pub(super) fn copy(
        &mut self,
        context: &Context<'_>,
        (fd, offset): (i32, Option<u64>),
        (to, to_offset): (i32, Option<u64>),
        count: u64,
    ) -> Result<(), NotModelled> {
        let recorded = value(context)?;
        let (from, into) = (self.open_of(context.process, fd)?, self.open_of(context.process, to)?);
        self.permits(from, false)?;
        self.permits(into, true)?;
        if recorded > count || recorded > MAX_AT_ONCE {
            return Err("too long, or more than was asked for".into());
        }
        let source = match self.opens[from].object {
            Object::File(node) => node,
            Object::Pipe { .. } => return Err("from a pipe".into()),
            _ => return Err("not from a file".into()),
        };
        let at = offset.unwrap_or(self.opens[from].offset);
        if at > MAX_BYTES {
            return Err("too far".into());
        }
        if recorded > 0 {
            self.names.is_as_long_as(source, at + recorded);
        }
        let there = self.names.size(source).saturating_sub(at).min(recorded);
        if matches!(self.opens[into].object, Object::File(node) if node == source) {
            // Which bytes are read before others are written is not told.
            return Err("to itself".into());
        }
        self.compare(context, "bytes copied", recorded, there);
        let mut bytes = self.names.read(source, at, there);
        let sum = sum(&bytes);
        // While names are found there are no bytes yet.
        bytes.resize(there as usize, 0);
        let mut things = vec![(Thing::Bytes(source), false)];
        match self.opens[into].object {
            Object::File(node) => {
                let own =
                    if self.opens[into].appends { self.names.size(node) } else { self.opens[into].offset };
                let start = to_offset.unwrap_or(own);
                let end = start.saturating_add(there);
                let more = self.names.growth(node, end);
                if end > MAX_BYTES || self.plan.written_bytes + more > MAX_WRITTEN {
                    return Err("too far".into());
                }
                self.plan.written_bytes += more;
                self.names.write(node, start, &bytes);
                things.push((Thing::Bytes(node), true));
                if to_offset.is_none() {
                    things.push((Thing::Open(into), true));
                    self.opens[into].offset = end;
                }
            }
            Object::Null => {}
            Object::Pipe { .. } if to_offset.is_some() => return Err("at an offset of a pipe".into()),
            Object::Pipe { pipe, writes: true } => {
                if !self.is_read_from(context, pipe) {
                    return Ok(());
                }
                self.piped += there;
                if self.piped > MAX_WRITTEN {
                    return Err("too much".into());
                }
                let number = self.done(context.process);
                let through = &mut self.pipes[pipe];
                through.open_end = None;
                let start = through.bytes.len();
                through.bytes.extend_from_slice(&bytes);
                through.writes.push((context.process, number, start..start + bytes.len()));
                things.extend([(Thing::End(2 * pipe + 1), true), (Thing::Readers(pipe), false)]);
            }
            Object::Pipe { .. } => return Err("the wrong end of a pipe".into()),
            Object::Directory { .. } => return Err("a directory".into()),
            Object::Other(what) => return Err(what.into()),
        }
        self.names.looked_at(source, at + there);
        if offset.is_none() {
            things.push((Thing::Open(from), true));
            self.opens[from].offset = at + there;
        }
        let len = there as usize;
        self.push(context, Action::Copy { fd, offset, to, to_offset, len, sum }, things);
        if offset.is_none() && recorded != there {
            // It goes on where it did.
            self.opens[from].offset = at + recorded;
            self.push_silent(context, Action::Seek { fd, to: at + recorded });
        }
        Ok(())
    }

    /// A descriptor is an end of a pipe to write to.
    fn is_writer(&self, held: &Descriptor, pipe: usize) -> bool {
        matches!(self.opens[held.open].object, Object::Pipe { pipe: of, writes: true } if of == pipe)
    }

    /// A process has an end of a pipe to write to.
    fn can_write(&self, process: usize, pipe: usize) -> bool {
        self.running[process].table.values().any(|held| self.is_writer(held, pipe))
    }

    /// Somebody can read from a pipe.
    fn can_be_read(&self, pipe: usize) -> bool {
        let reads = |held: &Descriptor| match self.opens[held.open].object {
            Object::Pipe { pipe: of, writes: false } => of == pipe,
            _ => false,
        };
        self.running.iter().any(|process| process.table.values().any(reads))
    }

    /// Somebody can read from a pipe. Where nobody can, the write that is recorded all the same is left out, and told.
    fn is_read_from(&mut self, context: &Context<'_>, pipe: usize) -> bool {
        let is = self.can_be_read(pipe);
        if !is {
            let what = "recorded: bytes written to a pipe that nobody can read from; they are left out";
            self.deviates(context, what.to_owned());
        }
        is
    }

    /// Another process has an end of a pipe to write to.
    fn others_can_write(&self, process: usize, pipe: usize) -> bool {
        (0..self.running.len()).any(|other| other != process && self.can_write(other, pipe))
    }

    pub(super) fn write(
        &mut self,
        context: &Context<'_>,
        fd: i32,
        count: u64,
        offset: Option<u64>,
    ) -> Result<(), NotModelled> {
        if context.call.answer == Answer::None
            && let Ok(open) = self.open_of(context.process, fd)
            && let Object::Pipe { pipe, writes: true } = self.opens[open].object
            && self.can_be_read(pipe)
        {
            return self.write_cut_off(context, (fd, pipe), count);
        }
        let len = value(context)?;
        let open = self.open_of(context.process, fd)?;
        self.permits(open, true)?;
        if len > count || len > MAX_AT_ONCE {
            return Err("too long, or more than was asked for".into());
        }
        // Seeds of files that were there are small.
        let seed = (1 << 40) + self.writes;
        let len_bytes = len as usize;
        let action = Action::Write { fd, seed, len: len_bytes, offset, waits: true };
        match self.opens[open].object {
            Object::File(node) => {
                let own =
                    if self.opens[open].appends { self.names.size(node) } else { self.opens[open].offset };
                let at = offset.unwrap_or(own);
                let end = at.saturating_add(len);
                let more = self.names.growth(node, end);
                if end > MAX_BYTES || self.plan.written_bytes + more > MAX_WRITTEN {
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
                let action = Action::Write { fd, seed, len: len_bytes, offset: None, waits: true };
                self.push(context, action, Vec::new())
            }
            Object::Pipe { .. } if offset.is_some() => return Err("at an offset of a pipe".into()),
            Object::Pipe { pipe, writes: true } => {
                if !self.is_read_from(context, pipe) {
                    return Ok(());
                }
                self.piped += len;
                if self.piped > MAX_WRITTEN {
                    return Err("too much".into());
                }
                let number = self.done(context.process);
                let through = &mut self.pipes[pipe];
                through.open_end = None;
                let start = through.bytes.len();
                through.bytes.extend_from_slice(&contents(seed, 0, len_bytes));
                through.writes.push((context.process, number, start..start + len_bytes));
                self.push(
                    context,
                    action,
                    vec![(Thing::End(2 * pipe + 1), true), (Thing::Readers(pipe), false)],
                );
            }
            Object::Pipe { .. } => return Err("the wrong end of a pipe".into()),
            Object::Directory { .. } => return Err("a directory".into()),
            Object::Other(what) => return Err(what.into()),
        }
        self.writes += 1;
        Ok(())
    }

    /// A write to a pipe did not return: its process was ended in the middle. What it had written is what others read
    /// and nobody else wrote, before this or later ([`Planner::read_on`]).
    fn write_cut_off(
        &mut self,
        context: &Context<'_>,
        (fd, pipe): (i32, usize),
        count: u64,
    ) -> Result<(), NotModelled> {
        let max = usize::try_from(count.min(MAX_AT_ONCE)).map_err(|_| "too long")?;
        let seed = (1 << 40) + self.writes;
        self.writes += 1;
        let number = self.done(context.process);
        let through = &mut self.pipes[pipe];
        let start = through.bytes.len();
        through.open_end = Some(OpenEnd { seed, left: max });
        through.writes.push((context.process, number, start..start));
        let things = vec![(Thing::End(2 * pipe + 1), true), (Thing::Readers(pipe), false)];
        self.push(context, Action::Write { fd, seed, len: 0, offset: None, waits: true }, things);
        self.read_on(pipe);
        Ok(())
    }

    /// Bytes that were read from a pipe and that nobody has written are those of a write that did not return, if that
    /// was the last one.
    fn read_on(&mut self, pipe: usize) {
        let room = MAX_WRITTEN.saturating_sub(self.piped);
        let through = &mut self.pipes[pipe];
        let missing = through.read.saturating_sub(through.bytes.len());
        let Some(end) = &mut through.open_end else { return };
        let more = missing.min(end.left).min(usize::try_from(room).unwrap_or(usize::MAX));
        let Some((process, number, range)) = through.writes.last_mut() else { return };
        self.piped += more as u64;
        through.bytes.extend_from_slice(&contents(end.seed, range.len() as u64, more));
        end.left -= more;
        range.end += more;
        if let Action::Write { len, .. } = &mut self.plan.processes[*process].ops[*number].action {
            *len += more;
        }
    }

    // ---------------------------------------------------------------------------------------------- mappings

    pub(super) fn map(
        &mut self,
        context: &Context<'_>,
        fd: i32,
        offset: u64,
        len: u64,
        shared: bool,
    ) -> Result<(), NotModelled> {
        let start = value(context)?;
        // Whatever comes of it: what was there is not there any more.
        self.unmap(context, start, len, false);
        let open = self.open_of(context.process, fd)?;
        let Object::File(node) = self.opens[open].object else { return Err("not a file".into()) };
        self.permits(open, false)?;
        if shared {
            return Err("shared".into());
        }
        if len == 0 || len > MAX_AT_ONCE || offset > MAX_BYTES || !offset.is_multiple_of(PAGE) {
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

    /// Takes what lies in these addresses out of mappings; true if anything did. The first part that goes is the call's
    /// own.
    pub(super) fn unmap(&mut self, context: &Context<'_>, at: u64, len: u64, is_own: bool) -> bool {
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
}
