//! The lower layer of mappings: objects, whose pages come from a file, a pager or a device, and the moving of these
//! pages between frames and the disk.

mod life;
mod object;
mod pager;

pub(crate) use life::Contents;
pub use object::{Backing, Object, Pager, PagerError, VnodePager};
pub(crate) use object::{ObjectPageError, ObjectState};
