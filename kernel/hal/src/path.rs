//! Paths: runs of kernel text, how long they are and where they lie.
//!
//! A floor says what it executes by the length of a path ([`crate::Account::execute`]). On a machine that fetches
//! instructions ([`Board::fetches`]) a path is also a run of kernel text: its lines go through the instruction TLB and
//! cache, so that code competes with code for them as data does with data. Boot lays the paths of all floors out one
//! behind the other ([`Text`]), and says where the text lies ([`crate::Account::set_text`]). A path that was not laid
//! out has a length and no place: it takes the time of its instructions, and none to fetch them.

use crate::board::Board;
use crate::time::Instructions;
use core::fmt;
use core::num::NonZeroU32;

/// A straight run of kernel text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct CodePath {
    /// How long it is.
    pub instructions: Instructions,
    /// Where it begins, in bytes from the beginning of the kernel's text; `None` when it was not laid out.
    pub text: Option<NonZeroU32>,
    /// Locked instructions on it, beside those of the locks that this kernel takes: counts of references, reader's
    /// locks and bit locks of the kernel that is modelled. They cost nothing where there is one CPU.
    pub locked: u32,
}

impl CodePath {
    /// A path of so many instructions, in no place yet.
    pub const fn of(instructions: u32) -> CodePath {
        CodePath { instructions: Instructions(instructions), text: None, locked: 0 }
    }
}

impl From<Instructions> for CodePath {
    fn from(instructions: Instructions) -> CodePath {
        CodePath { instructions, text: None, locked: 0 }
    }
}

impl fmt::Debug for CodePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text {
            Some(text) => write!(f, "{:?} at {text:#x} of the text", self.instructions),
            None => self.instructions.fmt(f),
        }
    }
}

/// Lays paths out one behind the other, each at the beginning of a cache line, as compilers do it with functions.
#[derive(Debug)]
pub struct Text {
    instruction_bytes: u32,
    len_bytes: u32,
}

/// What paths are aligned to.
const LINE_BYTES: u32 = 64;

impl Text {
    /// The text of a kernel for this board, without any path. Its first line is nobody's.
    pub fn new(board: &Board) -> Text {
        Text { instruction_bytes: board.instruction_bytes, len_bytes: LINE_BYTES }
    }

    /// Gives `path` its place, behind those that have theirs. What executes nothing takes none.
    ///
    /// # Panics
    /// When the text grows beyond 4 GB.
    pub fn place(&mut self, path: &mut CodePath) {
        let bytes = path.instructions.0.checked_mul(self.instruction_bytes);
        let end = bytes.and_then(|bytes| self.len_bytes.checked_add(bytes));
        let end = end.and_then(|end| end.checked_next_multiple_of(LINE_BYTES));
        let end = end.expect("a kernel's text of less than 4 GB");
        path.text = if end == self.len_bytes { None } else { NonZeroU32::new(self.len_bytes) };
        self.len_bytes = end;
    }

    /// Bytes of all that was laid out.
    pub fn len_bytes(&self) -> usize {
        self.len_bytes as usize
    }
}

/// Declares structures whose fields are all [`CodePath`]s, and gives them `all`, which makes every field the same path,
/// `each_mut`, which visits every field in order, and `named_mut`, which finds one by its name.
#[macro_export]
macro_rules! paths {
    ($($(#[$attribute:meta])* $vis:vis struct $name:ident {
        $($(#[$field_attribute:meta])* $field_vis:vis $field:ident: CodePath),* $(,)?
    })*) => { $(
        $(#[$attribute])*
        $vis struct $name { $($(#[$field_attribute])* $field_vis $field: $crate::CodePath),* }

        impl $name {
            /// Every path the same: for kernels whose path lengths do not matter.
            pub const fn all(path: $crate::CodePath) -> $name {
                $name { $($field: path),* }
            }

            /// Visits every path, in the order in which they are laid out.
            pub fn each_mut(&mut self, visit: &mut dyn FnMut(&mut $crate::CodePath)) {
                $(visit(&mut self.$field);)*
            }

            /// The names of all paths, in the same order.
            pub const NAMES: &[&str] = &[$(stringify!($field)),*];

            /// The path of this name.
            pub fn named_mut(&mut self, name: &str) -> Option<&mut $crate::CodePath> {
                $(if name == stringify!($field) {
                    return Some(&mut self.$field);
                })*
                None
            }
        }
    )* };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::Mmu;
    use crate::mmu::Width;

    paths! {
        /// For the test.
        struct Some {
            /// A line and a bit.
            one: CodePath,
            none: CodePath,
            two: CodePath,
        }
    }

    #[test]
    fn paths_lie_one_behind_the_other_on_lines_of_their_own() {
        let board = Board {
            cpus: 1,
            frames: 1,
            pointer: Width::Four,
            layout: crate::isa::x86::I386_LAYOUT,
            device_memory: None,
            mmu: Mmu::Hash,
            asids: 0,
            blocks: None,
            broadcasts_flushes: false,
            colours: 1,
            writes_through: false,
            instruction_bytes: 4,
            fetches: true,
            huge_pages: false,
        };
        let mut paths = Some { one: CodePath::of(17), none: CodePath::of(0), ..Some::all(CodePath::of(16)) };
        let mut text = Text::new(&board);
        paths.each_mut(&mut |path| text.place(path));
        let places = [paths.one, paths.none, paths.two].map(|path| path.text.map(NonZeroU32::get));
        assert_eq!(places, [Option::Some(64), None, Option::Some(192)]);
        assert_eq!(text.len_bytes(), 256);
        assert_eq!(paths.two.instructions, Instructions(16), "the length stays");
    }

    #[test]
    fn every_path_is_found_by_its_name() {
        let mut paths = Some::all(CodePath::of(16));
        for (i, name) in Some::NAMES.iter().enumerate() {
            paths.named_mut(name).expect("it has the name").locked = i as u32;
        }
        let Some { one, none, two } = paths;
        assert_eq!([one, none, two].map(|path| path.locked), [0, 1, 2]);
        assert!(paths.named_mut("three").is_none());
    }
}
