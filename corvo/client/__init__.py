"""A client of the HTTP API, synchronous, out of the standard library; imports none of the server.

    with Client(["10.0.0.1:8080", "10.0.0.2:8080"], api_key=api_key) as client:
        answer = client.get("/api/v1/cluster/nodes")
        client.change("POST", "/api/v1/enqueue", {"queue": "mail"}, request_key=new_request_key())

`corvo.client.calls` has the client. The command line and the SDK share this package.
"""
