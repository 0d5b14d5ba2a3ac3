module example.com/corvo-examples

go 1.19
