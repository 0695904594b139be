//! Empty: this package is only its list of dependencies.
