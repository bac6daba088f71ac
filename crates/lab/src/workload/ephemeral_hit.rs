//! The cost of a hit in the mapping cache (sf_buf paper, 4.2): the same few pages are mapped and unmapped in turn.

use crate::plan::RunSpec;
use crate::run::{OutcomeCell, Site};
use pageferry_kernel::{Program, User};
use pageferry_model::Model;

/// The program of the experiment's only process.
pub(crate) fn program(site: &Site, spec: &RunSpec, cell: OutcomeCell) -> Program<Model> {
    let _ = (site, spec, cell);
    Box::new(move |_user: &User<Model>| todo!())
}
