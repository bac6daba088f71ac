//! From a recording to a [`Plan`]: which descriptor of which process stands for what, at every call.
//!
//! The recording is gone through with the same rules several times: to find what was there at the beginning, until all
//! symbolic links are known, then to count the names that listed directories had beside those that were used, then for
//! good. What a call does with files is in `apply`.
//!
//! Threads of a process are one with it: their calls are made by one process, in the order in which they returned.

use super::ahead::{Ahead, ByNumber};
use super::calls::{At, From, Request, request};
use super::circle::{PipeRoom, ways};
use super::names::{Image, Names, Node, Original, Path};
use super::ops::{Action, Deviation, Op, Plan, Process, Through};
use super::order::{After, Order, Thing};
use pageferry_kernel::Errno;
use pageferry_trace::strace::{Answer, Call, Entry, What};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// What an open file is.
#[derive(Clone, Debug)]
pub(super) enum Object {
    File(Node),
    Directory {
        path: Path,
        node: Node,
        /// Names that were listed so far.
        listed: u64,
        /// Names that there were when that began.
        there: Option<u64>,
    },
    Null,
    Pipe {
        pipe: usize,
        writes: bool,
    },
    /// Nothing that is modelled: what it is.
    Other(&'static str),
}

#[derive(Clone, Debug)]
pub(super) struct Open {
    pub(super) object: Object,
    pub(super) offset: u64,
    pub(super) appends: bool,
    /// What a file was opened for.
    pub(super) reads: bool,
    pub(super) writes: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Descriptor {
    pub(super) open: usize,
    pub(super) closes_on_exec: bool,
}

/// A part of a file that is mapped, at these addresses of the recording.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mapping {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) id: usize,
    /// Where in the mapping that was made it begins.
    pub(super) from: u64,
}

/// A process while its calls are gone through.
#[derive(Clone, Debug, Default)]
pub(super) struct ProcessView {
    pub(super) table: BTreeMap<i32, Descriptor>,
    pub(super) here: Path,
    pub(super) mappings: Vec<Mapping>,
}

/// The plan while it is made: what every process has, and the plain model of names and pipes.
pub(super) struct Planner {
    pub(super) names: Names,
    pub(super) order: Order,
    pub(super) opens: Vec<Open>,
    pub(super) pipes: Vec<Through>,
    pub(super) running: Vec<ProcessView>,
    pub(super) plan: Plan,
    /// Which process has a number, threads with their process.
    pids: BTreeMap<u32, usize>,
    /// Numbers of processes and threads that have ended: others may get them.
    free: BTreeSet<u32>,
    /// By process: the numbers that were given to threads of it.
    threads: BTreeMap<usize, BTreeSet<u32>>,
    /// Processes that share their parent's descriptors: one with it, until they exec.
    sharing: BTreeSet<u32>,
    /// Processes that have not ended.
    alive: BTreeSet<usize>,
    /// Those that have, and nobody needs to have waited for it.
    ended: Vec<usize>,
    /// Which process has made which.
    pub(super) forked: BTreeMap<usize, usize>,
    pub(super) waited: BTreeSet<usize>,
    pub(super) mapped: usize,
    pub(super) writes: u64,
    /// Bytes that went into pipes.
    pub(super) piped: u64,
    /// Descriptors that were seen to be closed before the call that does so returned.
    pub(super) closed_early: BTreeSet<(usize, i32)>,
    /// How many descriptors were kept for calls under way; by the line of such a call its descriptors, and under which
    /// numbers they are kept (`under_way`).
    pub(super) kept: usize,
    pub(super) kept_for: BTreeMap<usize, Vec<(i32, i32)>>,
    /// Files that were opened without a name, in their order, and which of them get one later.
    pub(super) unnamed: Vec<Node>,
    pub(super) named: BTreeSet<usize>,
    /// Names that directories had, by their paths at the beginning, beside those that are known.
    pub(super) fillers: BTreeMap<Path, u64>,
    /// By place in the recording: what each call met others at; nothing while that is not asked for.
    met: Vec<Vec<(Thing, bool)>>,
}

/// What cannot be made again: why.
pub(super) type NotModelled = String;

/// What there is to a call beside its request.
pub(super) struct Context<'a> {
    pub(super) process: usize,
    /// The process's or thread's number.
    pub(super) pid: u32,
    pub(super) line: usize,
    pub(super) call: &'a Call,
    /// What comes after it in the recording; of what happens by itself, nothing.
    pub(super) ahead: Option<Ahead<'a>>,
}

impl Context<'_> {
    /// The process that has a number makes calls after this one. The number of one that has ended counts until then.
    pub(super) fn goes_on(&self, pid: u32) -> bool {
        self.ahead.is_some_and(|ahead| ahead.next_call(pid).is_some())
    }
}

/// Where a path that is not known begins.
const SOMEWHERE: &[u8] = b"somewhere";

/// The most that files hold at the beginning, as far as they are looked at.
const MAX_NEEDED: u64 = 1 << 28;

/// How often what was there is found: symbolic links to directories with symbolic links are seldom longer chains.
const MAX_TIMES: usize = 8;

/// What a plan is made for and of, beside the calls.
pub(super) struct Setting<'a> {
    /// The first process's directory at the beginning.
    pub(super) here: Path,
    /// Lines of the recording.
    pub(super) lines: usize,
    /// What the kernel's pipes take.
    pub(super) room: PipeRoom,
    /// The bytes of files, where there are any.
    pub(super) given: &'a dyn Fn(&Path, usize) -> Option<Vec<u8>>,
}

/// A plan, and by its place in the recording what each call met others at.
pub(super) struct Planned {
    pub(super) plan: Plan,
    pub(super) met: Vec<Vec<(Thing, bool)>>,
}

/// Makes the plan of a recording's entries, which count in this order.
///
/// # Errors
/// What of the recording is too much.
pub(super) fn plan(entries: &[&Entry], setting: &Setting<'_>) -> Result<Planned, String> {
    let (mut links, mut times) = (BTreeMap::new(), 0);
    let finding = loop {
        let mut finding = Planner::new(Names::finding(&links));
        finding.go_through(entries, setting);
        times += 1;
        if *finding.names.links() == links || times == MAX_TIMES {
            break finding;
        }
        links = finding.names.links().clone();
    };
    let min = finding.fillers;
    let needed = finding.names.needed_bytes();
    if needed > MAX_NEEDED {
        let (needed, max) = (crate::text::bytes(needed), crate::text::bytes(MAX_NEEDED));
        return Err(format!("{needed} of files are read, expected at most {max}"));
    }
    let mut image = finding.names.image(setting.given);
    let mut counting = Planner::new(Names::of(&image));
    counting.named.clone_from(&finding.named);
    counting.go_through(entries, setting);
    for (directory, count) in counting.fillers {
        let count = count.max(min.get(&directory).copied().unwrap_or(0));
        fill(&mut image, &directory, count);
    }
    let mut planner = Planner::new(Names::of(&image));
    planner.named = finding.named;
    planner.met = vec![Vec::new(); entries.len()];
    planner.go_through(entries, setting);
    planner.finish(setting.room)?;
    let Planner { mut plan, met, .. } = planner;
    plan.image = image;
    Ok(Planned { plan, met })
}

/// Puts names into a directory that was not used.
fn fill(image: &mut Image, directory: &Path, count: u64) {
    // No directory that a person keeps has more.
    for number in 0..count.min(100_000) {
        let mut path = directory.clone();
        path.push(format!(".unused-{number}").into_bytes());
        image.files.push(Original { path, size: 0, bytes: Vec::new() });
    }
}

/// The current directory at the beginning, as far as any call tells.
pub(super) fn first_directory(entries: &[Entry]) -> Path {
    let of = |entry: &Entry| {
        let What::Call(call) = &entry.what else { return None };
        if let Some(note) =
            call.args.first().filter(|arg| arg.0.starts_with("AT_FDCWD")).and_then(|a| a.note())
        {
            return Some(Some(note));
        }
        match request(call)? {
            Request::Here { path } => Some(Some(path)),
            Request::Chdir { .. } | Request::ChdirTo { .. } => Some(None),
            _ => None,
        }
    };
    let told = entries.iter().find_map(of).flatten();
    let mut path = Vec::new();
    match told.filter(|path| path.starts_with(b"/")) {
        Some(told) => follow(&mut path, &told),
        None => path.push(SOMEWHERE.to_vec()),
    }
    path
}

/// Follows a path; `..` leads back on the way that was come.
pub(super) fn follow(from: &mut Path, path: &[u8]) {
    if path.starts_with(b"/") {
        from.clear();
    }
    for name in path.split(|byte| *byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => {
                from.pop();
            }
            name => from.push(name.to_vec()),
        }
    }
}

/// What any pipe takes without waiting (`PIPE_BUF`, the least that POSIX allows).
const PIPE_BUF: usize = 512;

/// From how many processes on those that have ended are waited for.
const CROWDED: usize = 150;

/// The longest name that the modelled kernel has.
const MAX_NAME_BYTES: usize = 255;

/// The first of 256 characters for private use: they stand for the bytes of names that are no text.
const FIRST_BYTE: u32 = 0x10_ff00;

/// A name as the modelled kernel has it, which has only text. No two names become one: what is no text, or has one of
/// the letters that stand for bytes, has such letters for all bytes that are not ASCII.
pub(super) fn kernel_name(name: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(name) {
        Ok(text) if !text.chars().any(|letter| u32::from(letter) >= FIRST_BYTE) => Cow::Borrowed(text),
        _ => {
            let letter = |byte: &u8| match byte {
                0..0x80 => char::from(*byte),
                _ => char::from_u32(FIRST_BYTE + u32::from(*byte)).expect("for private use"),
            };
            Cow::Owned(name.iter().map(letter).collect())
        }
    }
}

/// A path as the modelled kernel has it: below its mount point.
pub(super) fn kernel_path(path: &Path) -> String {
    let mut text = "/mnt".to_owned();
    for name in path {
        text.push('/');
        text.push_str(&kernel_name(name));
    }
    text
}

/// The path of a symbolic link as the modelled kernel has it: one from the root begins at the mount point.
pub(super) fn kernel_target(path: &[u8]) -> String {
    let names: Vec<_> = path.split(|byte| *byte == b'/').map(kernel_name).collect();
    let text = names.join("/");
    if text.starts_with('/') { format!("/mnt{text}") } else { text }
}

impl Planner {
    fn new(names: Names) -> Planner {
        Planner {
            names,
            order: Order::default(),
            opens: Vec::new(),
            pipes: Vec::new(),
            running: Vec::new(),
            plan: Plan::default(),
            pids: BTreeMap::new(),
            free: BTreeSet::new(),
            threads: BTreeMap::new(),
            sharing: BTreeSet::new(),
            alive: BTreeSet::new(),
            ended: Vec::new(),
            forked: BTreeMap::new(),
            waited: BTreeSet::new(),
            mapped: 0,
            writes: 0,
            piped: 0,
            closed_early: BTreeSet::new(),
            kept: 0,
            kept_for: BTreeMap::new(),
            unnamed: Vec::new(),
            named: BTreeSet::new(),
            fillers: BTreeMap::new(),
            met: Vec::new(),
        }
    }

    fn go_through(&mut self, entries: &[&Entry], setting: &Setting<'_>) {
        let by_number = ByNumber::of(entries);
        for (index, entry) in entries.iter().enumerate() {
            let process = match self.pids.get(&entry.pid) {
                // An end may be told of twice; whatever else comes after one is another process's.
                Some(process) if self.is_alive(entry.pid) || matches!(entry.what, What::Exited) => *process,
                _ => {
                    let running = ProcessView { here: setting.here.clone(), ..ProcessView::default() };
                    let process = self.add(entry.pid, running, None);
                    self.plan.first.push(process);
                    process
                }
            };
            match &entry.what {
                What::Exited => self.exit(process, entry.pid, entry.line),
                What::Call(call) => {
                    let (pid, line) = (entry.pid, entry.line);
                    let ahead = Some(Ahead { entries, by_number: &by_number, entry: index });
                    self.take(&Context { process, pid, line, call, ahead });
                }
            }
        }
        // Those whose end was not recorded.
        for process in 0..self.running.len() {
            let pid = self.plan.processes[process].pid;
            self.end(process, pid, setting.lines);
        }
    }

    /// One more process.
    pub(super) fn add(&mut self, pid: u32, running: ProcessView, parent: Option<After>) -> usize {
        let process = self.running.len();
        self.running.push(running);
        self.plan.processes.push(Process { pid, ops: Vec::new() });
        self.order.add(parent);
        self.pids.insert(pid, process);
        self.free.remove(&pid);
        self.alive.insert(process);
        self.plan.at_once = self.alive.len().max(self.plan.at_once);
        process
    }

    /// A thread of a process, or another process that shares its descriptors.
    pub(super) fn add_thread(&mut self, pid: u32, process: usize, is_process: bool) {
        self.pids.insert(pid, process);
        self.free.remove(&pid);
        self.threads.entry(process).or_default().insert(pid);
        if is_process {
            self.sharing.insert(pid);
        }
    }

    /// A process that shared its parent's descriptors has its own from now on.
    pub(super) fn part(&mut self, pid: u32) -> bool {
        self.sharing.remove(&pid)
    }

    /// A process or a thread has this number, and has not ended.
    pub(super) fn is_alive(&self, pid: u32) -> bool {
        self.pids.contains_key(&pid) && !self.free.contains(&pid)
    }

    /// The numbers of a process's threads, and of processes that are one with it, if it has any beside its own.
    pub(super) fn threads(&self, process: usize) -> impl Iterator<Item = u32> + '_ {
        let own = self.plan.processes[process].pid;
        let others = self.threads.get(&process);
        let all = others.into_iter().flat_map(move |others| others.iter().copied().chain([own]));
        all.filter(move |pid| self.pids.get(pid) == Some(&process) && !self.free.contains(pid))
    }

    pub(super) fn process_of(&self, pid: u32) -> Option<usize> {
        self.pids.get(&pid).copied()
    }

    fn exit(&mut self, process: usize, pid: u32, line: usize) {
        self.free.insert(pid);
        self.sharing.remove(&pid);
        // A thread that ends takes nothing with it.
        if self.plan.processes[process].pid == pid {
            self.end(process, pid, line);
        }
    }

    /// A process has ended.
    fn is_over(&mut self, process: usize) {
        if self.alive.remove(&process) {
            self.ended.push(process);
        }
    }

    /// Where it becomes crowded, the call that was just added waits for all that have ended: as many processes as were
    /// there when it was recorded are there here, or a few more.
    pub(super) fn make_room(&mut self, process: usize) {
        if self.alive.len() + self.ended.len() < CROWDED {
            return;
        }
        let ended = std::mem::take(&mut self.ended);
        if let Some(op) = self.plan.processes[process].ops.last_mut() {
            op.after
                .extend(ended.into_iter().filter(|other| *other != process).map(|other| (other, usize::MAX)));
        }
    }

    fn take(&mut self, context: &Context<'_>) {
        let Context { call, .. } = context;
        if call.answer == Answer::None && matches!(call.name.as_str(), "exit" | "exit_group") {
            // The process's end follows.
            return;
        }
        let Some(mut request) = request(call) else {
            return self.leave_out(&call.name);
        };
        let kept = self.take_kept(context, &mut request);
        let opens = matches!(request, Request::Open { .. });
        self.meets_opens(context, &request.descriptors(), false);
        if let Err(why) = self.apply(context, request) {
            self.leave_out(&format!("{} ({why})", call.name));
        }
        if opens && let Answer::Value(fd) = call.answer {
            self.meets_opens(context, &[i32::try_from(fd).unwrap_or(-1)], true);
        }
        self.give_up_kept(context, kept);
    }

    /// A call meets others at what is open behind these descriptors.
    fn meets_opens(&mut self, context: &Context<'_>, fds: &[i32], alone: bool) {
        let held = fds.iter().filter_map(|fd| self.descriptor(context.process, *fd));
        let things: Vec<_> = held.map(|held| (Thing::Open(held.open), alone)).collect();
        self.meets(context, &things);
    }

    pub(super) fn leave_out(&mut self, what: &str) {
        *self.plan.not_modelled.entry(what.to_owned()).or_default() += 1;
    }

    pub(super) fn deviates(&mut self, context: &Context<'_>, what: String) {
        let (line, call) = (context.line, context.call.name.clone());
        self.plan.deviations.push(Deviation { line, call, what });
    }

    // ------------------------------------------------------------------------------------------- descriptors and paths

    pub(super) fn descriptor(&self, process: usize, fd: i32) -> Option<Descriptor> {
        self.running[process].table.get(&fd).copied()
    }

    /// The open file behind a descriptor, where it is modelled.
    pub(super) fn open_of(&self, process: usize, fd: i32) -> Result<usize, NotModelled> {
        let descriptor = self.descriptor(process, fd).ok_or("not opened in the recording")?;
        match self.opens[descriptor.open].object {
            Object::Other(what) => Err(what.to_owned()),
            _ => Ok(descriptor.open),
        }
    }

    /// What is behind a descriptor may be read, or written, as `writes` says.
    ///
    /// # Errors
    /// It was not opened for that.
    pub(super) fn permits(&self, open: usize, writes: bool) -> Result<(), NotModelled> {
        match (writes, &self.opens[open]) {
            (false, Open { reads: false, .. }) => Err("not opened to be read".into()),
            (true, Open { writes: false, .. }) => Err("not opened to be written".into()),
            _ => Ok(()),
        }
    }

    /// Gives a process a descriptor, in place of what had its number.
    pub(super) fn bind(&mut self, context: &Context<'_>, fd: i32, open: usize, closes_on_exec: bool) {
        self.unbind(context, fd);
        self.closed_early.remove(&(context.process, fd));
        self.running[context.process].table.insert(fd, Descriptor { open, closes_on_exec });
    }

    /// A number is free: what had it is closed by itself, where that was not seen.
    pub(super) fn unbind(&mut self, context: &Context<'_>, fd: i32) {
        self.keep_for_others(context, fd);
        if let Some(old) = self.running[context.process].table.remove(&fd)
            && self.is_in_kernel(old.open)
        {
            self.push_silent_at(context, Action::Close { fd }, self.met_by_close(old.open));
        }
    }

    /// What a close meets others at: nobody may write to a pipe that none reads from.
    pub(super) fn met_by_close(&self, open: usize) -> Vec<(Thing, bool)> {
        match self.opens[open].object {
            Object::Pipe { pipe, writes: false } => vec![(Thing::Readers(pipe), true)],
            _ => Vec::new(),
        }
    }

    /// A process ends at a line: it closes its ends of pipes, of which others may have to wait.
    pub(super) fn end(&mut self, process: usize, pid: u32, line: usize) {
        let is_reader = |held: &Descriptor| !self.met_by_close(held.open).is_empty();
        let table = &self.running[process].table;
        let fds: Vec<i32> = table.iter().filter(|(_, held)| is_reader(held)).map(|(fd, _)| *fd).collect();
        let call =
            Call { name: "exit".into(), args: Vec::new(), answer: Answer::None, note: None, took_us: None };
        let context = Context { process, pid, line, call: &call, ahead: None };
        for fd in fds {
            self.unbind(&context, fd);
        }
        self.running[process].table.clear();
        self.is_over(process);
    }

    /// A process had begun a call when another's returned, and that call closes a descriptor that it holds.
    pub(super) fn is_closing(
        &self,
        context: &Context<'_>,
        process: usize,
        fd: i32,
        held: &Descriptor,
    ) -> bool {
        let Some(ahead) = context.ahead else { return false };
        let of_process = self.pids.iter().filter(|(_, of)| **of == process);
        of_process.filter_map(|(pid, _)| ahead.begun(*pid)).any(|call| match (request(call), &call.answer) {
            (Some(Request::Close { fd: closed }), _) => closed == fd,
            (Some(Request::CloseRange { first, last, at_exec: false }), _) => (first..=last).contains(&fd),
            (Some(Request::Duplicate { .. }), Answer::Value(to)) => *to == i64::from(fd),
            (Some(Request::Exec { .. }), Answer::Value(_)) => held.closes_on_exec,
            _ => false,
        })
    }

    /// The modelled kernel has a descriptor for it, too.
    pub(super) fn is_in_kernel(&self, open: usize) -> bool {
        matches!(self.opens[open].object, Object::File(_) | Object::Null | Object::Pipe { .. })
    }

    pub(super) fn add_open(&mut self, object: Object, appends: bool) -> usize {
        self.opens.push(Open { object, offset: 0, appends, reads: true, writes: true });
        self.opens.len() - 1
    }

    pub(super) fn path(&self, context: &Context<'_>, at: &At) -> Result<Path, NotModelled> {
        let process = context.process;
        if at.path.is_empty() {
            return Err("an empty path".into());
        }
        if let Answer::Error(error) = &context.call.answer
            && at.path.ends_with(b"/")
            && (error != "ENOENT"
                || context.call.name.contains("link")
                || context.call.name.contains("rename"))
        {
            // What must be a directory is none, or must not be one: a path of the modelled kernel does not say that.
            return Err("a slash at the end of a path".into());
        }
        let mut path = match &at.from {
            _ if at.path.starts_with(b"/") => Vec::new(),
            From::Here(Some(note)) if note.starts_with(b"/") => {
                let mut path = Vec::new();
                follow(&mut path, note);
                path
            }
            From::Here(_) => self.running[process].here.clone(),
            From::Directory(fd) => {
                let open = self.open_of(process, *fd)?;
                match &self.opens[open].object {
                    Object::Directory { path, .. } => path.clone(),
                    _ => return Err("not a directory".into()),
                }
            }
        };
        follow(&mut path, &at.path);
        if path.iter().any(|name| kernel_name(name).len() > MAX_NAME_BYTES) {
            return Err("a long name".into());
        }
        Ok(path)
    }

    // --------------------------------------------------------------------------------------------- calls that are made

    /// Adds a call that is made again, and meets others at these things.
    pub(super) fn push(&mut self, context: &Context<'_>, action: Action, things: Vec<(Thing, bool)>) {
        self.push_op(context, Some(context.call.name.clone()), action, things);
    }

    /// Adds what happens by itself.
    pub(super) fn push_silent(&mut self, context: &Context<'_>, action: Action) {
        self.push_silent_at(context, action, Vec::new());
    }

    /// Adds what happens by itself, and meets others at these things.
    pub(super) fn push_silent_at(
        &mut self,
        context: &Context<'_>,
        action: Action,
        things: Vec<(Thing, bool)>,
    ) {
        self.push_op(context, None, action, things);
    }

    fn push_op(
        &mut self,
        context: &Context<'_>,
        name: Option<String>,
        action: Action,
        things: Vec<(Thing, bool)>,
    ) {
        let process = context.process;
        let number = self.plan.processes[process].ops.len();
        self.meets(context, &things);
        let after = self.order.meet(process, number, things);
        for (other, done) in &after {
            if let Some(op) = self.plan.processes[*other].ops.get_mut(*done - 1) {
                op.is_awaited = true;
            }
        }
        let took_us = context.call.took_us.filter(|_| name.is_some());
        let op = Op { name, line: context.line, took_us, after, is_awaited: false, action };
        self.plan.processes[process].ops.push(op);
    }

    /// A call meets others at these things, whether it is made or not.
    pub(super) fn meets(&mut self, context: &Context<'_>, things: &[(Thing, bool)]) {
        if let Some(ahead) = &context.ahead
            && let Some(met) = self.met.get_mut(ahead.entry)
        {
            met.extend_from_slice(things);
        }
    }

    /// How many calls of a process there are so far.
    pub(super) fn done(&self, process: usize) -> usize {
        self.plan.processes[process].ops.len()
    }

    /// What a path meets others at: at its directories beside them; at itself alone if it is made or goes.
    pub(super) fn at_path(path: &Path, changes: bool) -> Vec<(Thing, bool)> {
        let mut things = Vec::new();
        let mut text = String::new();
        for (index, name) in path.iter().enumerate() {
            let is_last = index + 1 == path.len();
            if is_last && changes {
                things.push((Thing::Names(text.clone()), false));
            }
            text.push('/');
            text.push_str(&kernel_name(name));
            things.push((Thing::Name(text.clone()), is_last && changes));
        }
        things
    }

    /// The names in a directory.
    pub(super) fn names_in(path: &Path) -> Thing {
        Thing::Names(path.iter().fold(String::new(), |text, name| text + "/" + &kernel_name(name)))
    }

    /// What a path meets others at, with the symbolic links on its way, which lead to `real`.
    pub(super) fn on_way(path: &Path, real: &Path, changes: bool) -> Vec<(Thing, bool)> {
        let mut things = Planner::at_path(real, changes);
        if path != real {
            things.extend(Planner::at_path(path, false));
        }
        things
    }

    /// Where a path leads.
    pub(super) fn real(&self, path: &Path, follows: bool) -> Result<Path, NotModelled> {
        self.names.resolve(path, follows).map_err(|errno| format!("symbolic links: {errno}"))
    }

    /// When all calls are known: what was read from pipes. What was read but never written, or written and never read,
    /// would be waited for for ever.
    ///
    /// # Errors
    /// What no plan can be made of.
    fn finish(&mut self, room: PipeRoom) -> Result<(), String> {
        let ways = ways(&self.plan, &self.pipes, room).map_err(|line| {
            format!("line {line}: the call waits for itself, as calls before it are missing")
        })?;
        for (process, number) in ways.no_wait {
            if let Action::Write { waits, .. } = &mut self.plan.processes[process].ops[number].action {
                *waits = false;
            }
        }
        for (pipe, through) in self.pipes.iter().enumerate() {
            let (limit, is_cut) = (ways.limits[pipe], ways.cut.contains(&pipe));
            let left = through.bytes.len() - limit;
            // Whoever reads the end of a pipe finds nothing before it.
            let ends = through.reads.iter().any(|(.., range)| range.is_empty());
            for (process, number, range) in &through.writes {
                let op = &mut self.plan.processes[*process].ops[*number];
                // A little stays in the pipe until that goes.
                let stays =
                    left <= PIPE_BUF && matches!(op.action, Action::Write { len, .. } if len <= PIPE_BUF);
                if range.end <= limit || range.is_empty() || (stays && !is_cut && !ends) {
                    continue;
                }
                let unread = range.end - limit.max(range.start);
                let what = match is_cut {
                    true => format!("whoever reads {unread} of the bytes from the pipe waits for this call"),
                    false => format!("nobody in the recording reads {unread} of the bytes from the pipe"),
                };
                leave_out_bytes(&mut self.plan.deviations, op, &what);
                match &mut op.action {
                    Action::Write { len, .. } if *len > unread => *len -= unread,
                    Action::Copy { len, sum, .. } if *len > unread => {
                        *len -= unread;
                        *sum = super::contents::sum(&through.bytes[range.start..range.start + *len]);
                    }
                    other => *other = Action::Enter,
                }
            }
            for (process, number, range) in &through.reads {
                let op = &mut self.plan.processes[*process].ops[*number];
                // No process waits for the end of a pipe by a number of bytes.
                let there = through.bytes.get(range.start..range.end.min(limit)).unwrap_or_default();
                if there.len() < range.len() {
                    let unwritten = range.len() - there.len();
                    let what = match is_cut {
                        true => {
                            format!("whoever writes {unwritten} of the bytes to the pipe waits for this call")
                        }
                        false => {
                            format!("nobody in the recording wrote {unwritten} of the bytes to the pipe")
                        }
                    };
                    leave_out_bytes(&mut self.plan.deviations, op, &what);
                }
                let is_end = !ways.without_end.contains(&(*process, *number));
                if !is_end {
                    let why = match range.start < limit {
                        true => "bytes come after the end of the pipe",
                        false => "whoever can write to the pipe waits for this call",
                    };
                    leave_out_bytes(&mut self.plan.deviations, op, why);
                }
                match &mut op.action {
                    Action::ReadPipe { answer, sum, .. }
                        if is_end && (there.len() == range.len() || !there.is_empty()) =>
                    {
                        *answer = there.len();
                        *sum = super::contents::sum(there);
                    }
                    other => *other = Action::Enter,
                }
            }
        }
        self.plan.deviations.sort_by_key(|deviation| deviation.line);
        Ok(())
    }
}

/// Tells why a call does not do with a pipe what it did.
fn leave_out_bytes(deviations: &mut Vec<Deviation>, op: &Op, why: &str) {
    let call = op.name.clone().unwrap_or_default();
    deviations.push(Deviation { line: op.line, call, what: format!("{why}: left out") });
}

/// The errors that files of the modelled kernel have, by their names.
pub(super) fn errno(name: &str) -> Option<Errno> {
    Some(match name {
        "ENOENT" => Errno::NoFile,
        "EEXIST" => Errno::Exists,
        "ENOTDIR" => Errno::NotDirectory,
        "EISDIR" => Errno::IsDirectory,
        "ENOTEMPTY" => Errno::NotEmpty,
        "ELOOP" => Errno::Loop,
        _ => return None,
    })
}
