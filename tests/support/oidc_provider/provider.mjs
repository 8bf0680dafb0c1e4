// A real OpenID Connect provider for tests: whoever signs in as NAME is in the groups NAMES of `NAME@group+group`.
// Arguments: port, client id, client secret, id of a public client, redirect URI of both, URL after signing out.
// POST /test/rotate replaces its keys.
import { generateKeyPairSync, randomUUID } from "node:crypto";
import { createServer } from "node:http";
import Provider from "oidc-provider";

const [port, client_id, client_secret, public_id, redirect_uri, signed_out_uri] = process.argv.slice(2);
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
    ].map((client) => ({ ...client, redirect_uris: [redirect_uri], post_logout_redirect_uris: [signed_out_uri] })),
    jwks: { keys },
    pkce: { required: () => true },
    claims: { openid: ["sub"], profile: ["preferred_username", "groups"], email: ["email", "email_verified"] },
    features: { devInteractions: { enabled: true }, rpInitiatedLogout: { enabled: true } },
    findAccount: (_, id) => ({
      accountId: id,
      claims: () => {
        const [name, groups = ""] = id.split("@");
        const email = `${name}@example.com`;
        return { sub: id, preferred_username: name, groups: groups.split("+"), email, email_verified: name !== "unverified" };
      },
    }),
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
