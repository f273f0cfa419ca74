//! Finding and reading script files.
//!
//! In: files and folders. Out: scripts, or the file that cannot be read or is wrong, with line and column.

use std::io;
use std::path::{Path, PathBuf};

use crate::error::ParseError;
use crate::model::Script;
use crate::parse::parse;

/// What the name of a script ends in.
pub const EXTENSION: &str = "roce";

/// Why a script could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A file or folder cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A folder without scripts: most likely not the one that was meant.
    #[error("{}: there is no *.{EXTENSION} file in this folder or below it", path.display())]
    Empty {
        /// Which.
        path: PathBuf,
    },
    /// A script is wrong.
    #[error(transparent)]
    Parse(#[from] ParseError),
}

/// The files that `paths` stand for: a file for itself, a folder for every `*.roce` file below it, in order of name.
///
/// # Errors
/// A path that cannot be read, or a folder without scripts.
pub fn find(paths: &[PathBuf]) -> Result<Vec<PathBuf>, LoadError> {
    let mut found = Vec::new();
    for path in paths {
        let failed = |error| LoadError::Read { path: path.clone(), error };
        if !std::fs::metadata(path).map_err(failed)?.is_dir() {
            found.push(path.clone());
            continue;
        }
        let before = found.len();
        walk(path, &mut found)?;
        if found.len() == before {
            return Err(LoadError::Empty { path: path.clone() });
        }
        found[before..].sort();
    }
    Ok(found)
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) -> Result<(), LoadError> {
    let failed = |error| LoadError::Read { path: folder.to_owned(), error };
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = entry.path();
        // Links to folders are not followed: they may go round.
        if entry.file_type().map_err(failed)?.is_dir() {
            walk(&path, found)?;
        } else if path.extension().is_some_and(|e| e == EXTENSION) {
            found.push(path);
        }
    }
    Ok(())
}

/// Reads a script. It is called by its folder and file, `rc/name.roce`, in whatever place that folder lies.
///
/// # Errors
/// The file cannot be read, or is wrong.
pub fn load(path: &Path) -> Result<Script, LoadError> {
    let file = path.file_name().map(Path::new).unwrap_or(path);
    let folder = path.parent().and_then(Path::file_name);
    let name = folder.map_or(file.to_owned(), |folder| Path::new(folder).join(file));
    load_as(path, &name.display().to_string())
}

/// Reads a script that is to be called `name`.
///
/// # Errors
/// As [`load`].
pub fn load_as(path: &Path, name: &str) -> Result<Script, LoadError> {
    let text = std::fs::read_to_string(path).map_err(|error| LoadError::Read { path: path.to_owned(), error })?;
    Ok(parse(name, &text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_found_is_named() {
        let missing = find(&["/nonexistent/x.roce".into()]).unwrap_err().to_string();
        assert!(missing.starts_with("/nonexistent/x.roce: "), "{missing}");
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let empty = find(&[folder]).unwrap_err().to_string();
        assert!(empty.contains("no *.roce file"), "{empty}");
    }
}
