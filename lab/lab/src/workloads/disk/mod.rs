//! Workloads on a memory disk.

pub(crate) mod dd;
pub(crate) mod file_calls;
pub(crate) mod postmark;
pub(crate) mod schemes;

use crate::error::LabError;
use crate::run::Testbed;
use pageferry_kernel::VolumeFormat;

/// How a volume is made with blocks and fragments of so many bytes.
///
/// # Errors
/// [`LabError::Incompatible`]: no volume has these.
fn format_of(testbed: &Testbed, block_bytes: u32, fragment_bytes: u32) -> Result<VolumeFormat, LabError> {
    let format = VolumeFormat { block_bytes, fragment_bytes };
    format.check().map_err(|e| testbed.incompatible(format!("block_bytes, fragment_bytes: {e}")))?;
    Ok(format)
}
