//! A numbered tour; see the files beside this folder.
