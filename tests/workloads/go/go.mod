module profd.test/workloads

go 1.18
