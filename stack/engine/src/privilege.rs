//! Giving up rights once they have served. In: the name of a user. Out: a process in which no thread has any capability.
//!
//! Opening an AF_XDP port takes rights; using it takes none. The change is for good and for the whole process: user and group
//! of every thread (the C library sees to that), no supplementary groups, no capabilities, and none by running other programs.

mod sys;

use std::fs;
use std::io;

/// A user to become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    name: String,
    uid: u32,
    gid: u32,
}

/// Why rights were not given up. After [`DropError::Refused`] and [`DropError::StillHeld`] some may be gone and others not:
/// the process should end.
#[derive(Debug, thiserror::Error)]
pub enum DropError {
    /// The system knows no such user.
    #[error("there is no user {name:?}; `getent passwd` lists those there are")]
    NoSuchUser {
        /// As given.
        name: String,
    },
    /// The user database cannot be read.
    #[error("user {name:?} cannot be looked up: {source}")]
    LookUp {
        /// As given.
        name: String,
        /// What the system says.
        source: io::Error,
    },
    /// That user has all rights.
    #[error("user {name:?} has user id 0 and would keep every right; name another, such as nobody")]
    IsRoot {
        /// As given.
        name: String,
    },
    /// A step was refused.
    #[error("{step}: {source}; becoming another user takes root, or CAP_SETUID and CAP_SETGID")]
    Refused {
        /// The system call.
        step: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// A thread kept something.
    #[error(
        "thread {thread} still has {what}: start it after the rights are given up, or give them up while the device is \
         opened (DeviceBuilder::drop_privileges)"
    )]
    StillHeld {
        /// The thread's number, or what could not be read of it.
        thread: String,
        /// The line of its `/proc/PID/task/TID/status`.
        what: String,
    },
}

impl User {
    /// Looks a user up by name.
    ///
    /// # Errors
    /// [`DropError::NoSuchUser`], [`DropError::LookUp`], or [`DropError::IsRoot`].
    pub fn named(name: &str) -> Result<User, DropError> {
        let name = name.to_owned();
        match sys::user_ids(&name) {
            Ok(Some((0, _))) => Err(DropError::IsRoot { name }),
            Ok(Some((uid, gid))) => Ok(User { name, uid, gid }),
            Ok(None) => Err(DropError::NoSuchUser { name }),
            Err(source) => Err(DropError::LookUp { name, source }),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its user id.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// The id of its main group.
    pub fn gid(&self) -> u32 {
        self.gid
    }
}

/// The whole process becomes `user` and has no capability any more, for good; checked thread by thread.
///
/// Where the process runs as `user` already (a binary with file capabilities), the kernel takes capabilities from the calling
/// thread only: then this must come before other threads start.
///
/// # Errors
/// See [`DropError`].
pub fn drop_to(user: &User) -> Result<(), DropError> {
    let refused = |step| move |source| DropError::Refused { step, source };
    if !sys::is(user.uid, user.gid) {
        sys::set_no_groups().map_err(refused("setgroups"))?;
        sys::set_gid(user.gid).map_err(refused("setresgid"))?;
        sys::set_uid(user.uid).map_err(refused("setresuid"))?;
    }
    sys::clear_capabilities().map_err(refused("capset"))?;
    sys::set_no_new_privileges().map_err(refused("prctl(PR_SET_NO_NEW_PRIVS)"))?;
    check_threads(user)
}

fn check_threads(user: &User) -> Result<(), DropError> {
    let unreadable = |source: io::Error| DropError::StillHeld {
        thread: "of this process".into(),
        what: format!("an unreadable status ({source})"),
    };
    for task in fs::read_dir("/proc/self/task").map_err(unreadable)?.flatten() {
        // One that has ended meanwhile has no rights.
        let Ok(status) = fs::read_to_string(task.path().join("status")) else { continue };
        if let Some(line) = first_held(&status, user) {
            let thread = task.file_name().to_string_lossy().into_owned();
            return Err(DropError::StillHeld { thread, what: line.split_whitespace().collect::<Vec<_>>().join(" ") });
        }
    }
    Ok(())
}

/// The first line of a thread's status that shows another user, or a capability.
fn first_held<'a>(status: &'a str, user: &User) -> Option<&'a str> {
    status.lines().find(|line| {
        let Some((field, value)) = line.split_once(':') else { return false };
        let all_are = |id: u32| value.split_whitespace().all(|v| v.parse() == Ok(id));
        match field {
            "Uid" => !all_are(user.uid),
            "Gid" => !all_are(user.gid),
            "CapInh" | "CapPrm" | "CapEff" | "CapAmb" => u64::from_str_radix(value.trim(), 16) != Ok(0),
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_or_named() {
        assert!(matches!(User::named("root"), Err(DropError::IsRoot { .. })));
        let error = User::named("no-such-user-here").unwrap_err();
        assert!(error.to_string().contains("no-such-user-here"), "{error}");
        assert!(matches!(User::named("a\0b"), Err(DropError::NoSuchUser { .. })));
    }

    #[test]
    fn a_thread_that_kept_something_is_found() {
        let user = User { name: "nobody".into(), uid: 65534, gid: 65534 };
        let clean = "Name:\tx\nUid:\t65534\t65534\t65534\t65534\nGid:\t65534\t65534\t65534\t65534\n\
                     CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n\
                     CapBnd:\t000001ffffffffff\nCapAmb:\t0000000000000000\n";
        assert_eq!(first_held(clean, &user), None);
        for (from, to) in [
            ("Uid:\t65534\t65534\t65534", "Uid:\t65534\t65534\t0"),
            ("Gid:\t65534", "Gid:\t0"),
            ("CapPrm:\t0000000000000000", "CapPrm:\t0000000000001000"),
            ("CapAmb:\t0000000000000000", "CapAmb:\t0000000000002000"),
        ] {
            let kept = clean.replacen(from, to, 1);
            assert_eq!(first_held(&kept, &user).map(|line| &line[..3]), Some(&to[..3]), "{to}");
        }
    }
}
