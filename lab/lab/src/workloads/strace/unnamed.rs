//! Files that are opened without a name (`O_TMPFILE`), and names for what is open (`linkat` of a descriptor).
//!
//! The modelled kernel makes files by their names alone. So such a file is made under a hidden name, which goes at
//! once. Only a file that the recording gives a name later keeps the hidden one until then, and its first name takes
//! that one's place: which files those are, the first time through the recording has found.

use super::apply::{CallEnd, descriptor, ended, flags};
use super::calls::{At, How};
use super::names::{Hint, Path};
use super::ops::Action;
use super::order::Thing;
use super::plan::{Context, NotModelled, Object, Planner, kernel_path};
use pageferry_kernel::{Errno, OpenFlags};

/// What hidden names begin with.
const HIDDEN: &[u8] = b".unnamed-";

fn is_hidden(path: &Path) -> bool {
    matches!(&path[..], [name] if name.starts_with(HIDDEN))
}

impl Planner {
    /// Opens a file without a name in the directory that a path leads to.
    pub(super) fn open_unnamed(
        &mut self,
        context: &Context<'_>,
        (path, directory): (&Path, &Path),
        how: How,
        closes_on_exec: bool,
    ) -> Result<(), NotModelled> {
        let fd = descriptor(context)?;
        let is_there = self.names.find(directory, Hint::There { is_directory: Some(true) }).map(drop);
        let mut things = Planner::on_way(path, directory, false);
        if !self.agrees(context, &CallEnd::Well(i64::from(fd)), &is_there, &things) {
            let open = self.add_open(Object::Other("of a call that was left out"), false);
            self.bind(context, fd, open, closes_on_exec);
            return Ok(());
        }
        let number = self.unnamed.len();
        let hidden: Path = vec![[HIDDEN, number.to_string().as_bytes()].concat()];
        let node = self.names.make_file(&hidden, false).map_err(|errno| format!("a hidden name: {errno}"))?;
        self.unnamed.push(node);
        self.plan.made += 1;
        let open = self.add_open(Object::File(node), how.append);
        (self.opens[open].reads, self.opens[open].writes) = (how.read, how.write);
        self.bind(context, fd, open, closes_on_exec);
        things.extend(Planner::at_path(&hidden, true));
        things.push((Thing::Bytes(node), true));
        let flags = flags(how) | OpenFlags::CREATE | OpenFlags::EXCLUSIVE;
        self.push(context, Action::Open { path: kernel_path(&hidden), flags, fd, answer: Ok(()) }, things);
        if !self.names.finds() && !self.named.contains(&number) {
            let answer = self.names.unlink(&hidden, true);
            let things = Planner::at_path(&hidden, true);
            self.push_silent_at(context, Action::Unlink { path: kernel_path(&hidden), answer }, things);
        }
        Ok(())
    }

    /// Gives what is open behind a descriptor a name.
    pub(super) fn link_open(&mut self, context: &Context<'_>, fd: i32, to: &At) -> Result<(), NotModelled> {
        let open = self.open_of(context.process, fd)?;
        let Object::File(node) = self.opens[open].object else { return Err("not a file".into()) };
        if let Some(number) = self.unnamed.iter().position(|unnamed| *unnamed == node) {
            self.named.insert(number);
        }
        let from = self.names.path_of(node).ok_or("of a file that has no name")?;
        let new = self.path(context, to)?;
        let to = self.real(&new, false)?;
        let recorded = ended(context)?;
        let did = matches!(recorded, CallEnd::Well(_));
        if let CallEnd::With(failed @ Errno::Exists) = recorded {
            self.learn(&to, failed);
        }
        let renames = did && is_hidden(&from);
        let answer = if renames {
            self.names.is_free(&to).and_then(|()| self.names.rename(&from, &to, did))
        } else {
            self.names.link(&from, &to, did)
        };
        let mut things = Planner::at_path(&from, renames);
        things.extend(Planner::on_way(&new, &to, did));
        if self.agrees(context, &recorded, &answer, &things) {
            self.plan.made += u64::from(did);
            let (from, to) = (kernel_path(&from), kernel_path(&new));
            let action =
                if renames { Action::Rename { from, to, answer } } else { Action::Link { from, to, answer } };
            self.push(context, action, things);
        }
        Ok(())
    }
}
