//! The skeleton all header views share: a struct over borrowed bytes and its two constructors.

/// Defines a view `$name<T>` over a header of `$len` bytes whose shortness is reported as `$field`.
macro_rules! header_view {
    ($(#[$doc:meta])* $name:ident, $len:expr, $field:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name<T: AsRef<[u8]>> {
            bytes: T,
        }

        impl<T: AsRef<[u8]>> $name<T> {
            /// A view over `bytes` without a check; getters panic if the bytes are shorter than the header.
            #[inline]
            pub const fn new_unchecked(bytes: T) -> Self {
                $name { bytes }
            }

            /// A view over `bytes` after checking that the header fits; bytes after it are ignored.
            ///
            /// # Errors
            /// [`Reason::TooShort`](crate::Reason::TooShort) if there are fewer bytes than the header has.
            #[inline]
            pub fn new_checked(bytes: T) -> Result<Self, $crate::WireError> {
                let len = bytes.as_ref().len();
                if len < $len {
                    return Err($crate::WireError::too_short($field, len, $len));
                }
                Ok($name { bytes })
            }

            /// The bytes the view stands on.
            #[inline]
            pub fn into_inner(self) -> T {
                self.bytes
            }

            #[inline]
            #[allow(dead_code)]
            fn data(&self) -> &[u8] {
                self.bytes.as_ref()
            }
        }

        impl<T: AsRef<[u8]> + AsMut<[u8]>> $name<T> {
            #[inline]
            #[allow(dead_code)]
            fn data_mut(&mut self) -> &mut [u8] {
                self.bytes.as_mut()
            }
        }
    };
}
