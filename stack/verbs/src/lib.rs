//! A software RDMA NIC in user space, behind a verbs API.
