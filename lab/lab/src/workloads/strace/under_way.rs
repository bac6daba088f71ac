//! Descriptors that are closed while a call of another thread is under way on what is behind them.
//!
//! A call acts on what its descriptor led to when it began, whatever becomes of the number meanwhile: another thread
//! may close it, or open something else under it. All threads of a process are one process here and have one table, and
//! a call counts when it returned. So what a call that is under way will act on is kept under a number of its own when
//! its descriptor goes, as the kernel that was recorded kept it, and closed behind the call. Such numbers are negative:
//! no recorded call has them.

use super::ahead::Ahead;
use super::calls::{Request, request};
use super::ops::Action;
use super::plan::{Context, Descriptor, Planner};
use pageferry_trace::strace::Answer;

impl Planner {
    /// A descriptor goes. It is kept for the calls of other threads that had begun with it before.
    pub(super) fn keep_for_others(&mut self, context: &Context<'_>, fd: i32) {
        let (Some(ahead), true) = (context.ahead, fd >= 0) else { return };
        let Some(held) = self.descriptor(context.process, fd) else { return };
        let lines: Vec<usize> = self
            .threads(context.process)
            .filter(|pid| *pid != context.pid)
            .filter_map(|pid| under_way(&ahead, pid, fd))
            .collect();
        if lines.is_empty() {
            return;
        }
        let to = -1 - i32::try_from(self.kept).unwrap_or(i32::MAX - 1);
        self.kept += 1;
        if self.is_in_kernel(held.open) {
            self.push_silent(context, Action::Duplicate { fd, to });
        }
        let kept = Descriptor { open: held.open, closes_on_exec: true };
        self.running[context.process].table.insert(to, kept);
        for line in lines {
            self.kept_for.entry(line).or_default().push((fd, to));
        }
    }

    /// The descriptors of a call become those that were kept for it; answers which those are.
    pub(super) fn take_kept(&mut self, context: &Context<'_>, request: &mut Request) -> Vec<i32> {
        let kept = self.kept_for.remove(&context.line).unwrap_or_default();
        for fd in request.begins_with() {
            if let Some((_, to)) = kept.iter().find(|(of, _)| of == fd) {
                *fd = *to;
            }
        }
        kept.into_iter().map(|(_, to)| to).collect()
    }

    /// A call is over: what was kept for it goes, unless another needs it, too.
    pub(super) fn give_up_kept(&mut self, context: &Context<'_>, kept: Vec<i32>) {
        for fd in kept {
            if !self.kept_for.values().flatten().any(|(_, to)| *to == fd) {
                self.unbind(context, fd);
            }
        }
    }

    /// A new process has copies of what is kept for the calls of its parent's threads. None of them is in it.
    pub(super) fn forget_kept(&mut self, child: &Context<'_>) {
        let kept: Vec<i32> = self.running[child.process].table.range(..0).map(|(fd, _)| *fd).collect();
        for fd in kept {
            self.unbind(child, fd);
        }
    }
}

/// The line of the call that a thread had begun with a descriptor before a call began.
fn under_way(ahead: &Ahead<'_>, pid: u32, fd: i32) -> Option<usize> {
    let (line, call) = ahead.under_way(pid)?;
    if call.answer == Answer::None {
        return None;
    }
    request(call)?.begins_with().iter().any(|of| **of == fd).then_some(line)
}
