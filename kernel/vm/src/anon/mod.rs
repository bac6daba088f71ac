//! Anonymous memory: the anon (one virtual page), the amap (an area of them), and how many entries cover each of its
//! slots.

mod amap;
mod anon;
mod lent_page;
mod life;
mod ppref;
mod slots;

pub(crate) use amap::{Amap, AmapState};
pub(crate) use anon::{Anon, AnonState};
