//! Devices: the sound device, its driver and its calls; the console.

mod audio;
mod audio_io;
mod screen;

pub(crate) use audio::Audio;
pub(crate) use audio_io::AudioFile;
pub(crate) use screen::{Screen, acknowledge};
