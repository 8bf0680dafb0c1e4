// A real OpenID Connect provider for tests: whoever signs in as NAME is in the groups NAMES of `NAME@group+group`.
// Arguments: port, client id, client secret, id of a public client, redirect URI of both, URL after signing out, and the
// one that is told of a sign-out.
// POST /test/rotate replaces its keys.
import { generateKeyPairSync, randomUUID } from "node:crypto";
import { createServer } from "node:http";
import Provider from "oidc-provider";

const [port, client_id, client_secret, public_id, redirect_uri, signed_out_uri, told_uri] = process.argv.slice(2);
const issuer = `http://127.0.0.1:${port}`;

function make() {
  const keys = [
    generateKeyPairSync("rsa", { modulusLength: 2048 }).privateKey,
    generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey,
  ].map((key) => ({ ...key.export({ format: "jwk" }), use: "sig", kid: randomUUID() }));
  const provider = new Provider(issuer, {
    clients: [
      { client_id, client_secret },
      { client_id: public_id, token_endpoint_auth_method: "none" },
    ].map((client) => ({
      ...client,
      redirect_uris: [redirect_uri],
      post_logout_redirect_uris: [signed_out_uri],
      backchannel_logout_uri: told_uri,
      backchannel_logout_session_required: true,
    })),
    jwks: { keys },
    pkce: { required: () => true },
    claims: { openid: ["sub"], profile: ["preferred_username", "groups"], email: ["email", "email_verified"] },
    features: { devInteractions: { enabled: true }, rpInitiatedLogout: { enabled: true }, backchannelLogout: { enabled: true } },
    findAccount: (_, id) => ({
      accountId: id,
      claims: () => {
        const [name, groups = ""] = id.split("@");
        const email = `${name}@example.com`;
        return { sub: id, preferred_username: name, groups: groups.split("+"), email, email_verified: name !== "unverified" };
      },
    }),
    // Without its dispatcher, which connects to no loopback address.
    fetch: (url, { dispatcher, ...options }) => fetch(url, options),
    cookies: { keys: [randomUUID()] },
    ttl: { IdToken: 600 },
  });
  provider.on("server_error", (_, error) => console.error(error));
  return provider.callback();
}

let answer = make();
createServer((request, response) => {
  if (request.url === "/test/rotate") {
    answer = make();
    response.end();
  } else {
    answer(request, response);
  }
}).listen(Number(port), "127.0.0.1", () => console.log("listening"));
