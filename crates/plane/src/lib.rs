//! The control plane under the locks: jobs, workflow runs, approvals and the loops that repair them.
