import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.Map;
import java.util.concurrent.Executors;
import org.apache.iceberg.catalog.Namespace;
import org.apache.iceberg.catalog.TableIdentifier;
import org.apache.iceberg.exceptions.AlreadyExistsException;
import org.apache.iceberg.exceptions.CommitFailedException;
import org.apache.iceberg.exceptions.NoSuchNamespaceException;
import org.apache.iceberg.exceptions.NoSuchTableException;
import org.apache.iceberg.inmemory.InMemoryCatalog;
import org.apache.iceberg.rest.CatalogHandlers;
import org.apache.iceberg.rest.RESTCatalogProperties.SnapshotMode;
import org.apache.iceberg.rest.RESTSerializers;
import org.apache.iceberg.rest.requests.CreateNamespaceRequest;
import org.apache.iceberg.rest.requests.CreateTableRequest;
import org.apache.iceberg.rest.requests.UpdateTableRequest;
import org.apache.iceberg.shaded.com.fasterxml.jackson.annotation.JsonAutoDetect;
import org.apache.iceberg.shaded.com.fasterxml.jackson.annotation.PropertyAccessor;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.DeserializationFeature;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.PropertyNamingStrategies;

/** The routes of a REST catalog over Apache Iceberg's own handlers, with tables in memory. Prints its port. */
public class IcebergRestServer {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final InMemoryCatalog CATALOG = new InMemoryCatalog();

  public static void main(String[] args) throws Exception {
    JSON.setVisibility(PropertyAccessor.FIELD, JsonAutoDetect.Visibility.ANY);
    JSON.configure(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES, false);
    JSON.setPropertyNamingStrategy(new PropertyNamingStrategies.KebabCaseStrategy());
    RESTSerializers.registerAll(JSON);
    CATALOG.initialize("rest", Map.of("warehouse", args[0]));
    HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
    server.createContext("/v1/", IcebergRestServer::serve);
    server.setExecutor(Executors.newFixedThreadPool(4));
    server.start();
    System.out.println(server.getAddress().getPort());
  }

  private static void serve(HttpExchange exchange) throws IOException {
    int status = 200;
    Object found;
    try {
      found = answer(exchange);
    } catch (RuntimeException e) {
      status = status(e);
      found = Map.of("error", Map.of("message", "" + e.getMessage(), "type", e.getClass().getSimpleName(), "code", status));
    }
    byte[] body = found == null ? new byte[0] : JSON.writeValueAsBytes(found);
    try (exchange) {
      exchange.getResponseHeaders().set("Content-Type", "application/json");
      exchange.sendResponseHeaders(found == null ? 204 : status, found == null ? -1 : body.length);
      exchange.getResponseBody().write(body);
    }
  }

  private static Object answer(HttpExchange exchange) throws IOException {
    String[] parts = exchange.getRequestURI().getPath().substring("/v1/".length()).split("/");
    byte[] body = exchange.getRequestBody().readAllBytes();
    String route = exchange.getRequestMethod() + " " + parts.length;
    if (parts[0].equals("config")) {
      return Map.of("defaults", Map.of(), "overrides", Map.of());
    }
    if (route.equals("POST 1")) {
      return CatalogHandlers.createNamespace(CATALOG, JSON.readValue(body, CreateNamespaceRequest.class));
    }
    Namespace namespace = Namespace.of(parts[1]);
    if (route.equals("POST 3")) {
      return CatalogHandlers.createTable(CATALOG, namespace, JSON.readValue(body, CreateTableRequest.class));
    }
    TableIdentifier table = TableIdentifier.of(namespace, parts[3]);
    switch (route) {
      case "GET 4":
        return CatalogHandlers.loadTable(CATALOG, table, SnapshotMode.ALL);
      case "POST 4":
        return CatalogHandlers.updateTable(CATALOG, table, JSON.readValue(body, UpdateTableRequest.class));
      case "DELETE 4":
        CatalogHandlers.dropTable(CATALOG, table);
        return null;
      default:
        throw new IllegalArgumentException(route);
    }
  }

  private static int status(RuntimeException e) {
    if (e instanceof CommitFailedException || e instanceof AlreadyExistsException) {
      return 409;
    }
    if (e instanceof NoSuchTableException || e instanceof NoSuchNamespaceException) {
      return 404;
    }
    return e instanceof IllegalArgumentException ? 400 : 500;
  }
}
