//! Devices: the sound device, its driver and its calls.

mod audio;
mod audio_io;

pub(crate) use audio::Audio;
pub(crate) use audio_io::AudioFile;
