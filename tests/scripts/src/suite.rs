//! Where the scripts of this folder are.

use std::path::Path;

use xroce_script::Script;
use xroce_script::files::{self, LoadError};

/// The folder of this suite.
pub fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every script in `rc/` and `uc/`, in order of name. Names are relative to [`folder`].
///
/// # Errors
/// The first file that cannot be read, or is wrong.
pub fn load() -> Result<Vec<Script>, LoadError> {
    let mut scripts = Vec::new();
    for path in files::find(&[folder().to_path_buf()])? {
        let name = path.strip_prefix(folder()).unwrap_or(&path).display().to_string();
        scripts.push(files::load_as(&path, &name)?);
    }
    Ok(scripts)
}
