//! The scripts of this folder.

use std::path::{Path, PathBuf};

use crate::error::ParseError;
use crate::model::Script;
use crate::parse::parse;

/// Why the scripts could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file or folder cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// A script is wrong.
    #[error(transparent)]
    Parse(#[from] ParseError),
}

/// The folder of this suite.
pub fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every `*.roce` file in `rc/` and `uc/` of `folder`, in order of name. Names are relative to `folder`.
///
/// # Errors
/// The first file that cannot be read, or is wrong.
pub fn load(folder: &Path) -> Result<Vec<Script>, LoadError> {
    let mut scripts = Vec::new();
    for part in ["rc", "uc"] {
        let dir = folder.join(part);
        let entries = std::fs::read_dir(&dir).map_err(|error| LoadError::Read { path: dir.clone(), error })?;
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.retain(|path| path.extension().is_some_and(|e| e == "roce"));
        paths.sort();
        for path in paths {
            let text = std::fs::read_to_string(&path).map_err(|error| LoadError::Read { path: path.clone(), error })?;
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            scripts.push(parse(&format!("{part}/{file}"), &text)?);
        }
    }
    Ok(scripts)
}
